//! The paths that policies read. Nothing else of a command's context is converted to Cedar: arguments may be
//! long, and policies read few of them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::names::path;

/// Paths from a policy's variables, like `context.arguments.amount`. The value at the end of a path is needed
/// whole.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ReadPaths {
    whole: bool,
    below: BTreeMap<String, ReadPaths>,
}

pub(super) static WHOLE: ReadPaths = ReadPaths { whole: true, below: BTreeMap::new() };

impl ReadPaths {
    /// Adds the paths that a policy, in its JSON form, reads.
    pub fn add(&mut self, form: &Value) {
        if let Some(path) = path(form) {
            let end = path.into_iter().fold(self, |at, name| at.below.entry(name.to_owned()).or_default());
            end.whole = true;
            return;
        }
        match form {
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The paths below this name; None if nothing below it is read.
    pub fn of(&self, name: &str) -> Option<&ReadPaths> {
        if self.whole { Some(&WHOLE) } else { self.below.get(name) }
    }

    /// The names that are read; None when all are.
    pub fn names(&self) -> Option<impl Iterator<Item = (&str, &ReadPaths)>> {
        (!self.whole).then(|| self.below.iter().map(|(name, wanted)| (name.as_str(), wanted)))
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use cedar_policy::Policy;

    use super::*;

    fn wanted(conditions: &[&str]) -> ReadPaths {
        let mut wanted = ReadPaths::default();
        for condition in conditions {
            let text = format!("permit (principal, action, resource) when {{ {condition} }};");
            wanted.add(&Policy::from_str(&text).unwrap().to_json().unwrap());
        }
        wanted
    }

    /// The paths, with a star where everything is read.
    fn paths(wanted: &ReadPaths) -> Vec<String> {
        let mut paths: Vec<String> = wanted.whole.then(|| "*".to_owned()).into_iter().collect();
        for (name, below) in &wanted.below {
            paths.extend(self::paths(below).into_iter().map(|path| format!("{name}.{path}")));
        }
        paths
    }

    #[test]
    fn only_the_paths_that_policies_read_are_converted() {
        for (conditions, expected) in [
            (&["true"][..], &[][..]),
            (&["context.arguments.amount > 5"], &["context.arguments.amount.*"]),
            (
                &["context.arguments has to && !(5 < context.arguments.a.b)"],
                &["context.arguments.a.b.*", "context.arguments.to.*"],
            ),
            (
                &["context has tenant", "resource.risk == context.tenant"],
                &["context.tenant.*", "resource.risk.*"],
            ),
            (
                &["context.arguments == {a: context.time.hour}"],
                &["context.arguments.*", "context.time.hour.*"],
            ),
            (
                &["[context].contains(context)", "context.work.id == \"x\""],
                &["context.*", "context.work.id.*"],
            ),
            (
                &["(if principal == resource then context else context.arguments).x"],
                &["context.*", "context.arguments.*", "principal.*", "resource.*"],
            ),
            (&["context.arguments.tags.contains(\"context\")"], &["context.arguments.tags.*"]),
            (
                &["context.arguments[\"an odd name\"].likes like \"*\""],
                &["context.arguments.an odd name.likes.*"],
            ),
        ] {
            assert_eq!(paths(&wanted(conditions)), expected, "{conditions:?}");
        }
    }

    #[test]
    fn a_whole_takes_in_what_is_below_it() {
        let wanted =
            wanted(&["context.arguments.a.b == 1", "context.arguments.a has c", "context.arguments.a == 1"]);
        let arguments = wanted.of("context").and_then(|context| context.of("arguments")).unwrap();
        assert_eq!(arguments.names().unwrap().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
        let a = arguments.of("a").unwrap();
        assert!(a.names().is_none() && a.of("anything") == Some(&WHOLE));
        assert!(wanted.of("resource").is_none() && arguments.of("b").is_none());
    }
}
