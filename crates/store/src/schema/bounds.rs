//! The cost of a schema, computed before it is compiled. A schema comes from a caller, and a few lines can
//! have an exponential cost: a `$ref` that is used twice doubles everything that it refers to.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The length of a schema as text.
const SCHEMA_BYTES: usize = 64 * 1024;
/// Subschemas and listed values, counted again for every `$ref` to them.
const SCHEMA_PARTS: u64 = 5_000;
/// The length of a pattern as text. Its compiled size is limited as well.
const PATTERN_CHARS: usize = 1_000;
/// The number of patterns of a schema. Each counts once, however many `$ref`s lead to it: each is compiled,
/// and kept while it is used.
const PATTERNS: usize = 64;
/// Checks of one value against one schema: at most a second of work.
pub const CHECKS: u64 = 20_000_000;
/// The levels of a schema, including those behind a `$ref`.
const LEVELS: usize = 128;
/// `unevaluatedProperties` and `unevaluatedItems` evaluate their neighbours a second and a third time.
const UNEVALUATED: u64 = 3;
/// The bytes of text that are compared, hashed or counted in the time of one check.
const TEXT: u64 = 32;
/// Bytes of a compiled pattern times bytes of text that are matched in the time of one check, in the worst
/// case.
const MATCHED: u64 = 64;

/// The cost of checking one value against a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub parts: u64,
    /// The bytes of the compiled patterns, counted for every application.
    pub patterns: u64,
    /// The depth of nested recursions: each applies its schemas once for every level of the value.
    pub recursions: u32,
}

impl Cost {
    /// The maximum number of checks for a value; time and memory are proportional to it.
    pub fn checks(self, value: &Value) -> u64 {
        let size = Size::of(value);
        let matched = self.patterns.saturating_mul(size.text) / MATCHED;
        let once = self.parts.saturating_mul(size.values).saturating_add(matched);
        once.saturating_mul(size.levels.saturating_pow(self.recursions))
    }
}

/// The size of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Values and names; a long text counts as several.
    pub values: u64,
    /// The bytes of all texts and names.
    text: u64,
    levels: u64,
}

impl Size {
    /// The size of this value.
    pub fn of(value: &Value) -> Self {
        let mut size = Self { values: 1, text: 0, levels: 1 };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => size.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| size.add(item)),
            Value::Object(fields) => fields.iter().for_each(|(name, field)| {
                size.values += 1;
                size.add_text(name);
                size.add(field);
            }),
        }
        size
    }

    fn add(&mut self, below: &Value) {
        let below = Self::of(below);
        self.values += below.values;
        self.text += below.text;
        self.levels = self.levels.max(1 + below.levels);
    }

    fn add_text(&mut self, text: &str) {
        self.values += text.len() as u64 / TEXT;
        self.text += text.len() as u64;
    }
}

/// The cost of a schema, or the limit that it exceeds. `compiled` returns the compiled size of a pattern in
/// bytes.
pub fn cost(schema: &Value, compiled: impl Fn(&str) -> Result<u64, String>) -> Result<Cost, String> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes, and the limit is {SCHEMA_BYTES}"));
    }
    let draft_4 = schema["$schema"].as_str().is_some_and(|draft| draft.contains("draft-04"));
    let id = if draft_4 { "id" } else { "$id" };
    let root = At { times: 1, descents: 0, level: 0 };
    let open = vec![Open::new(schema, root)];
    let mut walk = Walk { root: schema, id, compiled, parts: 0, patterns: 0, known: HashMap::new(), open };
    walk.visit(schema, root)?;
    let recursions = walk.open.iter().map(Open::recursions).max().unwrap_or(0);
    Ok(Cost { parts: walk.parts, patterns: walk.patterns, recursions })
}

struct Walk<'s, F> {
    root: &'s Value,
    /// The keyword that starts a separate schema resource.
    id: &'static str,
    compiled: F,
    parts: u64,
    patterns: u64,
    /// The compiled sizes of patterns, by address.
    known: HashMap<*const u8, u64>,
    /// The targets of `$ref`s that are being walked, below the root.
    open: Vec<Open<'s>>,
}

/// Where a schema is applied.
#[derive(Clone, Copy)]
struct At {
    /// The number of times.
    times: u64,
    /// The depth in the value.
    descents: usize,
    /// The depth in the schema.
    level: usize,
}

struct Open<'s> {
    schema: &'s Value,
    at: At,
    /// A `$ref` below refers back to this schema.
    is_head: bool,
    /// It is part of a recursion, its own or that of a schema above.
    recurs: bool,
    /// The depth of nested recursions that it leads to.
    below: u32,
}

impl<'s> Open<'s> {
    fn new(schema: &'s Value, at: At) -> Self {
        Self { schema, at, is_head: false, recurs: false, below: 0 }
    }

    fn recursions(&self) -> u32 {
        self.below + u32::from(self.is_head)
    }
}

impl<'s, F: Fn(&str) -> Result<u64, String>> Walk<'s, F> {
    fn visit(&mut self, schema: &'s Value, at: At) -> Result<(), String> {
        self.count(at.times)?;
        let Value::Object(keywords) = schema else { return Ok(()) };
        if at.level > LEVELS {
            return Err(format!("it is nested deeper than {LEVELS} levels, those behind a `$ref` included"));
        }
        let unevaluated =
            ["unevaluatedProperties", "unevaluatedItems"].iter().any(|key| keywords.contains_key(*key));
        let again = if unevaluated { at.times.saturating_mul(UNEVALUATED) } else { at.times };
        for (key, value) in keywords {
            let times = if is_looked_at_once(key) { at.times } else { again };
            self.keyword(key, value, At { times, ..at })?;
        }
        Ok(())
    }

    fn keyword(&mut self, key: &str, value: &'s Value, at: At) -> Result<(), String> {
        let below = At { level: at.level + 1, descents: at.descents + usize::from(is_below(key)), ..at };
        match (key, value) {
            ("$ref", Value::String(target)) => self.refer(target, at),
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("`{key}` cannot be used: write a `$ref`")),
            (_, Value::String(_)) if key == self.id && at.level > 0 => {
                Err(format!("`{key}` below the root cannot be used: keep one schema in one resource"))
            }
            ("pattern", Value::String(pattern)) => self.pattern(pattern, at.times),
            // These are data: a value is compared with all of it.
            ("const" | "enum", listed) | ("required" | "type", listed @ Value::Array(_)) => {
                self.list(listed, at.times)
            }
            ("default" | "examples", _) => Ok(()),
            ("patternProperties", Value::Object(named)) => {
                named.keys().try_for_each(|pattern| self.pattern(pattern, at.times))?;
                self.each(named, below)
            }
            (_, Value::Object(named)) if holds(key) == Some(Holds::Named) => self.each(named, below),
            ("dependentRequired", Value::Object(named)) => {
                named.values().try_for_each(|names| self.list(names, at.times))
            }
            (_, Value::Object(_)) => self.visit(value, below),
            (_, Value::Array(items)) => items.iter().try_for_each(|item| self.visit(item, below)),
            _ => Ok(()),
        }
    }

    fn each(&mut self, named: &'s Map<String, Value>, below: At) -> Result<(), String> {
        named.values().try_for_each(|schema| match schema {
            // `dependencies` may list names.
            Value::Array(_) => self.list(schema, below.times),
            schema => self.visit(schema, below),
        })
    }

    fn list(&mut self, listed: &Value, times: u64) -> Result<(), String> {
        self.count(times.saturating_mul(Size::of(listed).values))
    }

    fn count(&mut self, times: u64) -> Result<(), String> {
        self.parts = self.parts.saturating_add(times);
        if self.parts > SCHEMA_PARTS {
            return Err(format!("it has more than {SCHEMA_PARTS} parts once every `$ref` is followed"));
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &'s str, times: u64) -> Result<(), String> {
        let bytes = match self.known.get(&pattern.as_ptr()) {
            Some(bytes) => *bytes,
            None => {
                let chars = pattern.chars().count();
                if chars > PATTERN_CHARS {
                    return Err(format!(
                        "a pattern has {chars} characters, and the limit is {PATTERN_CHARS}"
                    ));
                }
                if self.known.len() == PATTERNS {
                    return Err(format!("it has more than {PATTERNS} patterns"));
                }
                let bytes = (self.compiled)(pattern)?;
                self.known.insert(pattern.as_ptr(), bytes);
                bytes
            }
        };
        self.patterns = self.patterns.saturating_add(bytes.saturating_mul(times));
        Ok(())
    }

    /// Follows a reference. A reference back to an enclosing schema is a recursion: it is as deep as the
    /// value, provided that it descends each time. Two that share a schema double the cost with each level,
    /// and so does one that is applied twice.
    fn refer(&mut self, target: &str, at: At) -> Result<(), String> {
        let schema = schema_at(self.root, target)?;
        let Some(head) = self.open.iter().position(|open| std::ptr::eq(open.schema, schema)) else {
            self.open.push(Open::new(schema, at));
            self.visit(schema, At { level: at.level + 1, ..at })?;
            let recursions = self.open.pop().map_or(0, |closed| closed.recursions());
            if let Some(from) = self.open.last_mut() {
                from.below = from.below.max(recursions);
            }
            return Ok(());
        };
        let around = &mut self.open[head..];
        if around[0].at.descents == at.descents {
            return Err(format!("`$ref` to `{target}` leads back to itself without going deeper"));
        }
        if around[0].at.times != at.times || around.iter().any(|open| open.recurs) {
            return Err(format!(
                "`{target}` refers to itself more than once, which doubles the cost with every level"
            ));
        }
        around[0].is_head = true;
        around.iter_mut().for_each(|open| open.recurs = true);
        Ok(())
    }
}

/// The schema that a `$ref` names. The path may lead through schemas only: a validator would follow it into
/// data as well, which has not been counted.
fn schema_at<'s>(root: &'s Value, target: &str) -> Result<&'s Value, String> {
    let pointer = target
        .strip_prefix('#')
        .filter(|rest| (rest.is_empty() || rest.starts_with('/')) && !rest.contains('%'));
    let Some(pointer) = pointer else {
        return Err(format!("`$ref` to `{target}` cannot be used: only `#` and `#/…` within the schema can"));
    };
    let nowhere = || format!("`$ref` to `{target}` does not refer to anything");
    let mut at = root;
    let mut keys = pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    while let Some(keyword) = keys.next() {
        let below = at.get(&keyword).ok_or_else(nowhere)?;
        at = match (holds(&keyword), below) {
            (None, _) => {
                return Err(format!(
                    "`$ref` to `{target}` cannot be used: `{keyword}` does not contain schemas. Write it under `$defs`"
                ));
            }
            (Some(Holds::Named), _) => keys.next().and_then(|name| below.get(name)).ok_or_else(nowhere)?,
            (Some(Holds::Schemas), Value::Array(items)) => {
                let index = keys.next().and_then(|index| index.parse::<usize>().ok());
                index.and_then(|index| items.get(index)).ok_or_else(nowhere)?
            }
            (Some(Holds::Schemas), _) => below,
        };
    }
    Ok(at)
}

/// The form in which a keyword's value contains schemas.
#[derive(PartialEq)]
enum Holds {
    /// A schema, or a list of them.
    Schemas,
    /// By name.
    Named,
}

fn holds(keyword: &str) -> Option<Holds> {
    match keyword {
        "$defs" | "definitions" | "properties" | "patternProperties" | "dependentSchemas"
        | "dependencies" => Some(Holds::Named),
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => Some(Holds::Schemas),
        _ => is_below(keyword).then_some(Holds::Schemas),
    }
}

/// Whether a keyword applies its schemas to the contents of the checked value instead of the value itself.
fn is_below(keyword: &str) -> bool {
    matches!(
        keyword,
        "properties"
            | "patternProperties"
            | "items"
            | "prefixItems"
            | "additionalItems"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
    )
}

/// Whether `unevaluatedProperties` and `unevaluatedItems` need only names and positions to see what a
/// neighbouring keyword has evaluated.
fn is_looked_at_once(keyword: &str) -> bool {
    matches!(
        keyword,
        "properties" | "items" | "prefixItems" | "additionalItems" | "additionalProperties" | "propertyNames"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: &Value) -> Result<Cost, String> {
        cost(schema, |pattern| Ok(pattern.len() as u64))
    }

    /// Each definition uses the next one twice.
    fn doubling(levels: usize) -> Value {
        let mut defs = Map::new();
        for n in 0..levels {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            defs.insert(format!("d{n}"), json!({ "allOf": [next, next] }));
        }
        defs.insert(format!("d{levels}"), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/d0", "$defs": defs })
    }

    #[test]
    fn ordinary_schemas_are_within_the_bounds() {
        let order = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.com/order",
            "type": "object",
            "required": ["lines"],
            "properties": {
                "const": { "type": "string" },
                "lines": { "type": "array", "items": { "$ref": "#/$defs/line" } },
                "gift": { "$ref": "#/$defs/line" },
            },
            "$defs": { "line": { "properties": { "sku": { "pattern": "^[A-Z]{3}$" }, "n": { "minimum": 1 } } } },
        });
        assert!(of(&order).unwrap().parts < 30, "{:?}", of(&order));
        assert_eq!(of(&json!(true)), Ok(Cost { parts: 1, ..Cost::default() }));
        let tree = json!({ "properties": { "name": {}, "children": { "items": { "$ref": "#" } } } });
        let cost = of(&tree).unwrap();
        assert_eq!(cost, Cost { parts: 4, patterns: 0, recursions: 1 });
        let four_levels = json!({ "children": [{ "name": 1 }] });
        assert_eq!(cost.checks(&four_levels), 4 * 6 * 4, "once for each level that the value has");
        assert!(of(&doubling(5)).is_ok());
        let closed = json!({ "properties": { "children": { "items": { "$ref": "#" } } }, "unevaluatedProperties": false });
        assert_eq!(of(&closed).unwrap().recursions, 1);
    }

    #[test]
    fn recursions_inside_each_other_are_multiplied() {
        let list =
            |of: &str| json!({ "properties": { "next": { "$ref": "#/$defs/list" }, "is": { "$ref": of } } });
        let apart = json!({
            "properties": { "a": { "$ref": "#/$defs/tree" }, "b": { "$ref": "#/$defs/list" } },
            "$defs": { "tree": { "items": { "$ref": "#/$defs/tree" } }, "list": list("#/$defs/leaf"), "leaf": {} },
        });
        assert_eq!(of(&apart).unwrap().recursions, 1);
        let inside = json!({
            "$ref": "#/$defs/list",
            "$defs": { "tree": { "items": { "$ref": "#/$defs/tree" } }, "list": list("#/$defs/tree") },
        });
        let cost = of(&inside).unwrap();
        assert_eq!(cost.recursions, 2);
        assert_eq!(cost.checks(&json!([[1]])), cost.parts * 3 * 9);
    }

    /// Each definition leads to the next, and the last one back to all of them.
    fn cycles(holder: &str, levels: usize) -> Value {
        let to = |n: usize| json!({ "$ref": format!("#/{holder}/n{n}") });
        let mut defs: Map<_, _> =
            (0..levels).map(|n| (format!("n{n}"), json!({ "allOf": [to(n + 1)] }))).collect();
        let back: Vec<Value> = (0..=levels).map(to).collect();
        defs.insert(format!("n{levels}"), json!({ "items": { "allOf": back } }));
        json!({ "$ref": format!("#/{holder}/n0"), holder: defs })
    }

    #[test]
    fn cycles_that_share_a_schema_are_refused_wherever_they_are_written() {
        let through = |holder: &str| of(&cycles(holder, 9)).unwrap_err();
        for data in ["default", "const", "examples", "x-shared"] {
            assert!(through(data).contains("does not contain schemas"), "{}", through(data));
        }
        for holder in ["$defs", "definitions", "properties"] {
            assert!(through(holder).contains("doubles the cost with every level"), "{}", through(holder));
        }
        assert!(of(&cycles("$defs", 0)).is_ok(), "one cycle is a recursion");
        // The second cycle is walked after the first one is complete.
        let left = json!({
            "$ref": "#/$defs/a",
            "$defs": {
                "a": { "items": { "allOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/c" }] } },
                "b": { "$ref": "#/$defs/a" },
                "c": { "$ref": "#/$defs/a" },
            },
        });
        assert!(of(&left).unwrap_err().contains("doubles"), "{:?}", of(&left));
    }

    #[test]
    fn every_listed_value_is_counted() {
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let all_true = vec![true; 1_000];
        for schema in [
            json!({ "required": names }),
            json!({ "enum": names }),
            json!({ "const": names }),
            json!({ "const": "x".repeat(32_000) }),
            json!({ "type": names }),
            json!({ "dependentRequired": { "a": names } }),
            json!({ "dependencies": { "a": names } }),
            json!({ "allOf": all_true }),
        ] {
            let parts = of(&schema).unwrap().parts;
            assert!((1_000..1_010).contains(&parts), "{parts}");
        }
        let shared = json!({
            "items": { "allOf": vec![json!({ "$ref": "#/$defs/d" }); 1_300] },
            "$defs": { "d": { "dependentRequired": { "a": names } } },
        });
        assert!(of(&shared).unwrap_err().contains("more than 5000 parts"));
    }

    #[test]
    fn a_pattern_weighs_what_it_compiles_to_times_the_text() {
        let schema = json!({ "allOf": [{ "$ref": "#/$defs/p" }, { "$ref": "#/$defs/p" }], "$defs": { "p": { "pattern": "abcd" } } });
        let cost = of(&schema).unwrap();
        assert_eq!(cost.patterns, 12, "in `$defs`, and twice where it is used");
        let patterns = Cost { parts: 0, ..cost };
        assert_eq!(patterns.checks(&json!({ "key": "x".repeat(253) })), 12 * 256 / MATCHED);
    }

    #[test]
    fn what_would_cost_too_much_says_which_bound_it_breaks() {
        let deep = (0..200).fold(json!({}), |inner, _| json!({ "not": inner }));
        let unevaluated =
            (0..12).fold(json!({}), |inner, _| json!({ "anyOf": [inner], "unevaluatedProperties": false }));
        for (schema, told) in [
            (doubling(20), "more than 5000 parts"),
            (json!({ "items": { "enum": (0..6_000).collect::<Vec<_>>() } }), "more than 5000 parts"),
            (json!({ "properties": { "const": doubling(20), "$defs": {} } }), "does not refer to anything"),
            (unevaluated, "more than 5000 parts"),
            (json!({ "description": "x".repeat(70_000) }), "limit is 65536"),
            (json!({ "pattern": "a".repeat(1_001) }), "limit is 1000"),
            (json!({ "patternProperties": { "a".repeat(1_001): {} } }), "limit is 1000"),
            (json!({ "anyOf": vec![json!({ "pattern": "\\w{20}" }); 65] }), "more than 64 patterns"),
            (deep, "nested deeper than 128"),
            (json!({ "$ref": "#" }), "without going deeper"),
            (json!({ "allOf": [{ "$ref": "#" }] }), "without going deeper"),
            (
                json!({ "items": { "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] } }),
                "doubles the cost with every level",
            ),
            (json!({ "unevaluatedProperties": { "$ref": "#" } }), "doubles the cost with every level"),
            (json!({ "$ref": "#/default", "default": {} }), "`default` does not contain schemas"),
            (json!({ "$ref": "https://example.com/schema.json" }), "only `#` and `#/…`"),
            (json!({ "$ref": "#name", "$anchor": "name" }), "only `#` and `#/…`"),
            (json!({ "items": { "$dynamicRef": "#x" } }), "write a `$ref`"),
            (json!({ "items": { "$id": "https://example.com/other" } }), "one schema in one resource"),
        ] {
            let why = of(&schema).expect_err(told);
            assert!(why.contains(told), "{why}");
        }
    }
}
