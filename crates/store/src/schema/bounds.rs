//! What a schema may cost, counted before it is compiled. A schema comes from a caller, and a few lines of it can ask for
//! more work than there are atoms: a `$ref` that is used twice doubles all that it leads to.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tenure_core::limits::JSON_DEPTH;

/// A schema as text.
pub const SCHEMA_BYTES: usize = 64 * 1024;
/// Subschemas and listed values, counted anew wherever a `$ref` leads to them.
pub const SCHEMA_PARTS: u64 = 5_000;
/// A pattern as text. What it compiles to is bounded as well.
pub const PATTERN_CHARS: usize = 1_000;
/// Patterns of a schema, each counted once however many `$ref`s lead to it: each is compiled, and kept while it is used.
pub const PATTERNS: usize = 64;
/// Parts of the schema times values of what is checked against it: a second's work at most.
pub const CHECKS: u64 = 20_000_000;
/// Levels of a schema, those behind a `$ref` included.
const LEVELS: usize = 128;
/// `unevaluatedProperties` and `unevaluatedItems` look at what is beside them a second and a third time.
const UNEVALUATED: u64 = 3;

/// How many parts a schema has, or which bound it breaks.
pub fn parts(schema: &Value) -> Result<u64, String> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes, and a schema has at most {SCHEMA_BYTES}"));
    }
    let draft_4 = schema["$schema"].as_str().is_some_and(|draft| draft.contains("draft-04"));
    let id = if draft_4 { "id" } else { "$id" };
    let open = vec![Open { schema, descents: 0, returned: false }];
    let mut walk = Walk { root: schema, id, parts: 0, patterns: HashSet::new(), recursive: false, open };
    walk.visit(schema, 1, 0, 0)?;
    Ok(if walk.recursive { walk.parts * JSON_DEPTH as u64 } else { walk.parts })
}

/// How many values there are in what is checked; a long string counts for several.
pub fn values(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len() as u64 / 32,
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(|field| 1 + values(field)).sum::<u64>(),
    }
}

struct Walk<'s> {
    root: &'s Value,
    /// The keyword that starts a resource of its own.
    id: &'static str,
    parts: u64,
    /// By where they are.
    patterns: HashSet<*const u8>,
    recursive: bool,
    /// The schemas that a `$ref` led to, and that are being walked.
    open: Vec<Open<'s>>,
}

struct Open<'s> {
    schema: &'s Value,
    /// How deep in what is checked the schema is applied.
    descents: usize,
    /// A `$ref` below led back to it.
    returned: bool,
}

impl<'s> Walk<'s> {
    /// `times`: how often it is evaluated where it applies.
    fn visit(&mut self, schema: &'s Value, times: u64, descents: usize, level: usize) -> Result<(), String> {
        let Value::Object(keywords) = schema else { return Ok(()) };
        if level > LEVELS {
            return Err(format!("it is nested deeper than {LEVELS} levels, those behind a `$ref` included"));
        }
        self.count(times)?;
        let unevaluated =
            ["unevaluatedProperties", "unevaluatedItems"].iter().any(|key| keywords.contains_key(*key));
        let times = if unevaluated { times.saturating_mul(UNEVALUATED) } else { times };
        for (key, value) in keywords {
            self.keyword(key, value, (times, descents, level))?;
        }
        Ok(())
    }

    fn keyword(&mut self, key: &str, value: &'s Value, at: (u64, usize, usize)) -> Result<(), String> {
        let (times, descents, level) = at;
        match (key, value) {
            ("$ref", Value::String(target)) => self.refer(target, at),
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("`{key}` cannot be used: write a `$ref`")),
            (_, Value::String(_)) if key == self.id && level > 0 => {
                Err(format!("`{key}` below the root cannot be used: keep one schema in one resource"))
            }
            ("pattern", Value::String(pattern)) => self.pattern(pattern),
            // What is inside is data.
            ("enum" | "required" | "examples" | "type", Value::Array(items)) => {
                self.count(times.saturating_mul(items.len() as u64))
            }
            ("const" | "default" | "enum" | "examples", _) => Ok(()),
            ("patternProperties", Value::Object(named)) => {
                named.keys().try_for_each(|pattern| self.pattern(pattern))?;
                self.each(named, (times, descents + 1, level))
            }
            ("properties", Value::Object(named)) => self.each(named, (times, descents + 1, level)),
            ("$defs" | "definitions" | "dependentSchemas" | "dependencies", Value::Object(named)) => {
                self.each(named, at)
            }
            (_, Value::Object(_)) => {
                self.visit(value, times, descents + usize::from(is_below(key)), level + 1)
            }
            (_, Value::Array(items)) => {
                let descents = descents + usize::from(is_below(key));
                items.iter().try_for_each(|item| self.visit(item, times, descents, level + 1))
            }
            _ => Ok(()),
        }
    }

    fn each(&mut self, named: &'s Map<String, Value>, at: (u64, usize, usize)) -> Result<(), String> {
        let (times, descents, level) = at;
        named.values().try_for_each(|schema| match schema {
            // `dependencies` may list names.
            Value::Array(names) => self.count(times.saturating_mul(names.len() as u64)),
            schema => self.visit(schema, times, descents, level + 1),
        })
    }

    fn count(&mut self, times: u64) -> Result<(), String> {
        self.parts = self.parts.saturating_add(times);
        if self.parts > SCHEMA_PARTS {
            return Err(format!("it has more than {SCHEMA_PARTS} parts once every `$ref` is followed"));
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &'s str) -> Result<(), String> {
        let chars = pattern.chars().count();
        if chars > PATTERN_CHARS {
            return Err(format!("a pattern has {chars} characters, and one has at most {PATTERN_CHARS}"));
        }
        self.patterns.insert(pattern.as_ptr());
        if self.patterns.len() > PATTERNS {
            return Err(format!("it has more than {PATTERNS} patterns"));
        }
        Ok(())
    }

    /// Follows a reference. One that leads back to where it is used is a recursion: it goes as deep as what is checked,
    /// if it descends each time, and doubles with each level if there are two.
    fn refer(&mut self, target: &str, (times, descents, level): (u64, usize, usize)) -> Result<(), String> {
        let pointer = target
            .strip_prefix('#')
            .filter(|rest| (rest.is_empty() || rest.starts_with('/')) && !rest.contains('%'));
        let Some(pointer) = pointer else {
            return Err(format!(
                "`$ref` to `{target}` cannot be used: only `#` and `#/…` within the schema can"
            ));
        };
        let root = self.root;
        let Some(schema) = root.pointer(pointer) else {
            return Err(format!("`$ref` to `{target}` leads nowhere"));
        };
        if let Some(open) = self.open.iter_mut().find(|open| std::ptr::eq(open.schema, schema)) {
            if open.descents == descents {
                return Err(format!("`$ref` to `{target}` leads back to itself without going deeper"));
            }
            if std::mem::replace(&mut open.returned, true) {
                return Err(format!(
                    "`{target}` refers to itself more than once, which doubles with every level"
                ));
            }
            self.recursive = true;
            return Ok(());
        }
        self.open.push(Open { schema, descents, returned: false });
        let visited = self.visit(schema, times, descents, level + 1);
        self.open.pop();
        visited
    }
}

/// Whether a keyword applies its schema to what is inside the checked value, rather than to the value itself.
fn is_below(keyword: &str) -> bool {
    matches!(
        keyword,
        "items"
            | "prefixItems"
            | "additionalItems"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert!(parts(&order).unwrap() < 30, "{:?}", parts(&order));
        assert_eq!(parts(&json!(true)), Ok(0));
        let tree = json!({ "properties": { "name": {}, "children": { "items": { "$ref": "#" } } } });
        assert_eq!(parts(&tree), Ok(4 * JSON_DEPTH as u64), "once for each level that a payload may have");
        assert!(parts(&doubling(5)).is_ok());
    }

    #[test]
    fn what_would_cost_too_much_says_which_bound_it_breaks() {
        let deep = (0..200).fold(json!({}), |inner, _| json!({ "not": inner }));
        let unevaluated =
            (0..12).fold(json!({}), |inner, _| json!({ "anyOf": [inner], "unevaluatedProperties": false }));
        for (schema, told) in [
            (doubling(20), "more than 5000 parts"),
            (json!({ "items": { "enum": (0..6_000).collect::<Vec<_>>() } }), "more than 5000 parts"),
            (json!({ "properties": { "const": doubling(20), "$defs": {} } }), "leads nowhere"),
            (unevaluated, "more than 5000 parts"),
            (json!({ "description": "x".repeat(70_000) }), "at most 65536"),
            (json!({ "pattern": "a".repeat(1_001) }), "at most 1000"),
            (json!({ "patternProperties": { "a".repeat(1_001): {} } }), "at most 1000"),
            (json!({ "anyOf": vec![json!({ "pattern": "\\w{20}" }); 65] }), "more than 64 patterns"),
            (deep, "nested deeper than 128"),
            (json!({ "$ref": "#" }), "without going deeper"),
            (json!({ "allOf": [{ "$ref": "#" }] }), "without going deeper"),
            (json!({ "items": { "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] } }), "doubles with every level"),
            (json!({ "$ref": "https://example.com/schema.json" }), "only `#` and `#/…`"),
            (json!({ "$ref": "#name", "$anchor": "name" }), "only `#` and `#/…`"),
            (json!({ "items": { "$dynamicRef": "#x" } }), "write a `$ref`"),
            (json!({ "items": { "$id": "https://example.com/other" } }), "one schema in one resource"),
        ] {
            let why = parts(&schema).expect_err(told);
            assert!(why.contains(told), "{why}");
        }
    }
}
