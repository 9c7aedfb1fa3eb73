// The ledger of effects of a run. Linux ends the write of a killed process at a page boundary: `effects` ignores the rest.
import { appendFileSync, existsSync, readFileSync } from "node:fs";

const path = (folder) => `${folder}/effects.log`;

export const append = (folder, effect) => appendFileSync(path(folder), `\n${JSON.stringify(effect)}\n`);

export function effects(folder) {
  const text = existsSync(path(folder)) ? readFileSync(path(folder), "utf8") : "";
  return text.split("\n").filter(Boolean).flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}
