// The answers that the client reads, against the server's OpenAPI document: `openapi.d.ts` is made from it before each test.
import type * as ours from "../src/answers.js";
import type { Json } from "../src/json.js";
import type { components } from "./openapi.js";

type Server = components["schemas"];
/** A type of ours, in which JSON is of no known type, as in the document. */
type Wire<T> = [Json] extends [T] ? unknown : T extends (infer E)[] ? Wire<E>[] : T extends object ? { [K in keyof T]: Wire<T[K]> } : T;
type Agrees<Ours, Theirs extends Wire<Ours>> = [Ours, Theirs];

export type Agreements = [
  Agrees<ours.Journal, Server["Journal"]>,
  Agrees<ours.Head, Server["Run"]>,
  Agrees<ours.Outcome, Server["Appended"]>,
  Agrees<ours.ReadBack, Server["ReadBack"]>,
  Agrees<ours.Completed, Server["Done"]>,
  Agrees<ours.Pending, Server["Pending"]>,
  Agrees<ours.RecoveryAnswer, Server["Recovery"]>,
  Agrees<ours.CallAnswer, Server["Lookup"]>,
  Agrees<ours.LookupAnswer, Server["Lookup"]>,
  Agrees<ours.RecordsPage, Server["Lines"]>,
];
