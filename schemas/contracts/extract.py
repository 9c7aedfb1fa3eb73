#!/usr/bin/env python3
"""Lists every type, field and variant that the pinned agent-sdk-core can put into a journal.

    extract.py PATH-OF-THE-CRATE > agent-sdk-core-0.1.0-alpha.4.json

Reads the crate's Rust sources (a registry's copy does) and follows `use` from `journal::JournalRecord` to every type that
it holds; then adds each serialisable type of `src/records/` that it does not hold, marked `"in_journal": false`.

A type is one of
    struct     {"fields": [{"name", "type", "absent": how an absent value is written, "flatten"}]}
    enum       {"tag": "unit" | "internal:NAME" | "adjacent:NAME:CONTENT" | "external", "variants": [{"name", "json", …}]}
    transparent {"of": TYPE}                     a newtype whose JSON is the JSON of the wrapped value
`absent`: "required" (always written), "null" (an option that is written as null), "skipped" (left out when none or empty).
Only the standard library is used.
"""

import json
import pathlib
import re
import sys

PRIMITIVES = {"String", "str", "bool", "u8", "u16", "u32", "u64", "usize", "i32", "i64", "f32", "f64", "Value"}
CONTAINERS = {"Option", "Vec", "BTreeMap", "BTreeSet", "HashMap", "Box"}


def clean(text):
    """The source without comments and test modules; string literals stay."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"(?m)^\s*//.*$", "", text)
    return re.sub(r"(?s)#\[cfg\(test\)\]\s*mod \w+ \{.*", "", text)


def balanced(text, start, opening="{", closing="}"):
    """The text between the bracket at `start` and its partner, and where it ends."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return text[start + 1:at], at + 1
    raise ValueError(f"unbalanced {opening}")


def split(text, separator=","):
    """Splits at separators outside brackets."""
    parts, depth, last = [], 0, 0
    previous = ""
    for at, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and previous != "-"):
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[last:at])
            last = at + 1
        previous = char
    parts.append(text[last:])
    return [part.strip() for part in parts if part.strip()]


def attributes(text):
    """Leading attributes of an item and the rest of it."""
    found = []
    text = text.strip()
    while text.startswith("#["):
        body, end = balanced(text, 1, "[", "]")
        found.append(body.strip())
        text = text[end:].strip()
    return found, text


def serde(found):
    """The arguments of `#[serde(…)]`, flags as True."""
    out = {}
    for attribute in found:
        match = re.match(r"(?s)serde\((.*)\)$", attribute)
        for part in split(match.group(1)) if match else []:
            name, _, value = part.partition("=")
            out[name.strip()] = value.strip().strip('"') if value else True
    return out


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Module:
    def __init__(self, name, text):
        self.name, self.items, self.uses = name, {}, {}
        text = clean(text)
        self.read_uses(text)
        self.read_macros(text)
        self.read_items(text)

    def read_uses(self, text):
        for match in re.finditer(r"(?m)^\s*(?:pub(?:\([a-z]+\))? )?use ", text):
            end = text.index(";", match.end())
            self.use("", re.sub(r"\s+", " ", text[match.end():end]).strip())

    def use(self, prefix, tree):
        head, brace, rest = tree.partition("{")
        if brace:
            for part in split(rest.rstrip()[:-1]):
                self.use(prefix + head.strip(), part)
            return
        path, _, alias = (prefix + tree).partition(" as ")
        parts = path.split("::")
        if parts[-1] == "self":
            parts.pop()
        self.uses[alias.strip() or parts[-1]] = parts

    def read_macros(self, text):
        """Newtypes that a macro of this file makes of its argument."""
        for match in re.finditer(r"macro_rules! (\w+)", text):
            body, _ = balanced(text, text.index("{", match.end()))
            if re.search(r"serde\(transparent\)\]\s*pub struct \$name\(String\)", body):
                for call in re.findall(match.group(1) + r"!\(\s*(\w+)[^)]*\)", text):
                    self.items[call] = {"kind": "transparent", "of": "String"}
            text = text.replace(body, "")

    def read_items(self, text):
        for match in re.finditer(r"pub (struct|enum) (\w+)(<\w+>)?\s*([({;])", text):
            kind, name, _, bracket = match.groups()
            found = self.attributes_before(text, match.start())
            if not any(a.startswith("derive(") and "Serialize" in a for a in found):
                continue
            options = serde(found)
            if bracket == "(":
                body, _ = balanced(text, match.end() - 1, "(", ")")
                inner = attributes(body)[1].removeprefix("pub ").rstrip(",").strip()
                self.items[name] = {"kind": "transparent", "of": inner}
            elif kind == "struct":
                body, _ = balanced(text, match.end() - 1)
                self.items[name] = {"kind": "struct", "fields": self.fields(body, {})}
            else:
                body, _ = balanced(text, match.end() - 1)
                self.items[name] = self.enum(body, options)

    @staticmethod
    def attributes_before(text, end):
        """The attributes right before an item: walked back over balanced `#[…]`."""
        found = []
        while True:
            head = text[:end].rstrip()
            if not head.endswith("]"):
                return found
            depth, at = 0, len(head) - 1
            while at >= 0:
                depth += {"]": 1, "[": -1}.get(head[at], 0)
                if depth == 0:
                    break
                at -= 1
            if at < 1 or head[at - 1] != "#":
                return found
            found.append(head[at + 1:-1].strip())
            end = at - 1

    @staticmethod
    def fields(body, renames):
        out = []
        for part in split(body):
            found, rest = attributes(part)
            options = serde(found)
            if options.get("skip"):
                continue
            name, _, type_ = rest.removeprefix("pub ").partition(":")
            type_ = re.sub(r"\s+", " ", type_).strip()
            absent = "required"
            if "skip_serializing_if" in options:
                absent = "skipped"
            elif type_.startswith("Option<"):
                absent = "null"
            field = {"name": options.get("rename", name.strip()), "type": type_, "absent": absent}
            if options.get("flatten"):
                field["flatten"] = True
            out.append(field)
        return out

    def enum(self, body, options):
        style = options.get("rename_all")
        if style not in (None, "snake_case"):
            raise ValueError(f"rename_all = {style}")
        variants, data = [], False
        for part in split(body):
            found, rest = attributes(part)
            name = re.match(r"\w+", rest).group(0)
            json_name = serde(found).get("rename") or (snake(name) if style else name)
            variant = {"name": name, "json": json_name}
            rest = rest[len(name):].strip()
            if rest.startswith("("):
                variant["of"] = rest[1:-1].strip().rstrip(",")
                data = True
            elif rest.startswith("{"):
                variant["fields"] = self.fields(balanced(rest, 0)[0], options)
                data = True
            variants.append(variant)
        if "content" in options:
            tag = f"adjacent:{options['tag']}:{options['content']}"
        elif "tag" in options:
            tag = f"internal:{options['tag']}"
        else:
            tag = "external" if data else "unit"
        return {"kind": "enum", "tag": tag, "variants": variants}


class Crate:
    def __init__(self, root):
        self.modules = {}
        lib = clean((root / "src/lib.rs").read_text())
        self.modules[""] = Module("", lib)
        for path, name in re.findall(r'#\[path = "([^"]+)"\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?mod (\w+);', lib):
            self.add(name, root / "src" / path)
        for name in re.findall(r"(?m)^(?:pub )?mod (\w+);", lib):
            if name not in self.modules:
                for path in (root / f"src/{name}.rs", root / f"src/{name}/mod.rs"):
                    if path.exists():
                        self.add(name, path)
        self.records = {path.resolve() for path in (root / "src/records").glob("*.rs")}

    def add(self, name, path):
        text = clean(path.read_text())
        self.modules[name] = module = Module(name, text)
        module.path = path.resolve()
        for attribute, child in re.findall(r'(#\[path = "[^"]+"\]\s*)?(?:pub )?mod (\w+);', text):
            inner = re.search(r'"([^"]+)"', attribute)
            candidates = [path.parent / inner.group(1)] if inner else [path.parent / f"{child}.rs", path.with_suffix("") / f"{child}.rs"]
            for candidate in candidates:
                if candidate.exists():
                    self.add(f"{name}::{child}", candidate)

    def resolve(self, module, path, seen=()):
        """(module, name) of what `path` means in `module`."""
        parts = path.split("::") if isinstance(path, str) else list(path)
        if parts[0] == "crate":
            module, parts = "", parts[1:]
        elif parts[0] == "super":
            module, parts = module.rpartition("::")[0], parts[1:]
        while len(parts) > 1:
            deeper = f"{module}::{parts[0]}".removeprefix("::")
            if deeper not in self.modules:
                break
            module, parts = deeper, parts[1:]
        if len(parts) != 1 or (module, parts[0]) in seen:
            raise KeyError(f"{module}: {path}")
        here = self.modules[module]
        if parts[0] in here.items:
            return module, parts[0]
        if parts[0] in here.uses:
            target = here.uses[parts[0]]
            base = "" if target[0] == "crate" else module
            return self.resolve(base, target, (*seen, (module, parts[0])))
        raise KeyError(f"{module}: {path}")

    def name_types(self, module, type_, into):
        """`type_` with every name replaced by `module::Name`; the names are added to `into`."""
        def replace(match):
            word = match.group(0)
            if word in PRIMITIVES or word in CONTAINERS or word in ("std", "serde_json"):
                return word
            if word.startswith("serde_json::"):
                return "Value"
            found = self.resolve(module, word)
            into.append(found)
            return "::".join(found)
        return re.sub(r"[A-Za-z_][\w:]*", replace, type_)

    def resolved(self, module, item):
        """The item with its types named in full, and the types that it holds."""
        held = []
        item = json.loads(json.dumps(item))
        if item["kind"] == "transparent":
            item["of"] = self.name_types(module, item["of"], held)
        for field in item.get("fields", []):
            field["type"] = self.name_types(module, field["type"], held)
        for variant in item.get("variants", []):
            if "of" in variant:
                variant["of"] = self.name_types(module, variant["of"], held)
            for field in variant.get("fields", []):
                field["type"] = self.name_types(module, field["type"], held)
        return item, held

    def closure(self, start, types, in_journal):
        queue = [start]
        while queue:
            module, name = queue.pop(0)
            full = f"{module}::{name}"
            if full in types:
                continue
            item, held = self.resolved(module, self.modules[module].items[name])
            types[full] = {**item, "in_journal": in_journal}
            queue.extend(held)


def main():
    root = pathlib.Path(sys.argv[1])
    manifest = (root / "Cargo.toml").read_text()
    crate, types = Crate(root), {}
    crate.closure(("journal", "JournalRecord"), types, True)
    for name, module in sorted(crate.modules.items()):
        if getattr(module, "path", None) in crate.records:
            for item in module.items:
                full = f"{name}::{item}"
                try:
                    if full not in types:
                        types[full] = {**crate.resolved(name, module.items[item])[0], "in_journal": False}
                except KeyError as error:
                    print(f"{full} left out: {error}", file=sys.stderr)
    print(json.dumps({
        "contract": re.search(r'(?m)^name = "([^"]+)"', manifest).group(1),
        "version": re.search(r'(?m)^version = "([^"]+)"', manifest).group(1),
        "license": re.search(r'(?m)^license = "([^"]+)"', manifest).group(1),
        "types": dict(sorted(types.items())),
    }, indent=1))


main()
