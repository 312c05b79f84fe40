//! JSON schemas that come from elsewhere, compiled in one way whoever uses them: their cost is bounded, patterns run in
//! linear time, nothing outside is referred to, and complaints are few and short.

mod bounds;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};
use tenure_core::{Code, Refusal};

use crate::{
    aside::aside_with_stack,
    fair::{Fair, beneficiary},
};
pub use bounds::Size;
use bounds::{CHECKS, Cost, cost};

/// Complaints that are told at once, and how long each may be.
const TOLD: usize = 3;
const TOLD_CHARS: usize = 200;
/// Complaints are listed where there are at most so many checks: the validator keeps all of them in memory.
const LISTED_CHECKS: u64 = 100_000;

/// So few checks are made at once.
const LIGHT_CHECKS: u64 = 10_000;

/// What a pattern may compile to, in bytes: the steps in which it is found out, and the most.
const PATTERN_BYTES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10];

/// How long a caller waits for schemas to be compiled and applied.
const DEADLINE: Duration = Duration::from_secs(2);
/// Threads that do so at a time, by tenant. One keeps its place until it ends, also past its deadline.
static THREADS: LazyLock<Arc<Fair>> = LazyLock::new(|| Fair::new(2, 1));
/// For a schema and a value of the greatest depth: a validator calls itself for every level of both.
const STACK: usize = 64 * 1024 * 1024;

/// A schema that can be applied.
#[derive(Debug)]
pub struct Compiled {
    validator: Validator,
    cost: Cost,
}

/// A schema that cannot be used is told with why.
pub fn compile(schema: &Value) -> Result<Compiled, String> {
    let cost = cost(schema, compiled_bytes)?;
    let validator = built(schema, PATTERN_BYTES[PATTERN_BYTES.len() - 1])?;
    Ok(Compiled { validator, cost })
}

fn built(schema: &Value, pattern_bytes: usize) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes);
    // Whether a text is a pattern takes a time that grows with its square.
    let options = jsonschema::options().with_pattern_options(patterns).with_format("regex", |_: &str| true);
    options.build(schema).map_err(|error| shortened(error.to_string()))
}

/// The least of a few sizes that a pattern fits into once it is compiled.
fn compiled_bytes(pattern: &str) -> Result<u64, String> {
    let schema = json!({ "pattern": pattern });
    let mut why = String::new();
    for bytes in PATTERN_BYTES {
        match built(&schema, bytes) {
            Ok(_) => return Ok(bytes as u64),
            Err(error) => why = error,
        }
    }
    Err(why)
}

impl Compiled {
    /// Whether a value is checked in less time than it takes to ask another thread, and on a small stack.
    pub fn is_light(&self, value: &Value) -> bool {
        self.cost.recursions == 0 && self.cost.checks(value) <= LIGHT_CHECKS
    }

    /// The first things that do not fit, or that there is too much to look at.
    pub fn complaints(
        &self,
        value: &Value,
        tell: impl Fn(ValidationError<'_>) -> String,
    ) -> Result<Vec<String>, Refusal> {
        let checks = self.cost.checks(value);
        if checks > CHECKS {
            let detail = format!(
                "The schema asks for {checks} checks of this JSON, and {CHECKS} are made at most. Send less, or use a \
                 simpler schema."
            );
            return Err(Refusal::new(Code::LimitReached, detail));
        }
        if self.validator.is_valid(value) {
            return Ok(Vec::new());
        }
        if checks > LISTED_CHECKS {
            return Ok(vec!["it is too large to list where".to_owned()]);
        }
        Ok(self.validator.iter_errors(value).take(TOLD).map(|error| shortened(tell(error))).collect())
    }
}

/// Compiles or applies schemas on a thread of its own, so that no call of anybody else waits for it, within a deadline.
/// Tenants take turns, and no tenant has all threads.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::time::timeout(DEADLINE, async {
        let turn = THREADS.turn(beneficiary().unwrap_or_default()).await;
        let work = move || {
            let _turn = turn;
            work()
        };
        aside_with_stack("schema", STACK, work).await
    });
    let too_long =
        |why: &str| Refusal::new(Code::LimitReached, format!("The schema could not be applied: {why}"));
    match done.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(too_long("it was given up. Use a simpler schema.")),
        Err(_) => Err(too_long("it took longer than two seconds. Use a simpler schema, or try again later.")),
    }
}

/// A complaint may quote a value, and be as long as that.
pub fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TOLD_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::fair::on_behalf_of;

    fn tell(error: ValidationError<'_>) -> String {
        error.to_string()
    }

    fn told(compiled: &Compiled, value: &Value) -> Vec<String> {
        compiled.complaints(value, tell).unwrap()
    }

    #[test]
    fn a_schema_runs_in_linear_time_and_fetches_nothing() {
        for wrong in [
            json!({ "type": "nonsense" }),
            json!(7),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "^(a+)+\\1$" }),
            json!({ "pattern": "((a{100}){100}){100}" }),
        ] {
            assert!(compile(&wrong).is_err(), "{wrong}");
        }
        let slow = compile(&json!({ "pattern": "^(a+)+$" })).unwrap();
        let long = json!(format!("{}!", "a".repeat(100_000)));
        assert_eq!(told(&slow, &long).len(), 1);
        assert!(compile(&json!({ "pattern": "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$" })).is_ok());
    }

    #[test]
    fn too_many_checks_are_refused_before_they_are_made() {
        let wide = json!({ "items": { "enum": (0..4_000).collect::<Vec<_>>() } });
        let compiled = compile(&wide).unwrap();
        assert_eq!(told(&compiled, &json!([1, 2, 4_000])).len(), 1);
        let refusal = compiled.complaints(&json!(vec![1; 100_000]), tell).unwrap_err();
        assert_eq!(refusal.code, Code::LimitReached);
    }

    #[test]
    fn a_large_pattern_is_not_matched_with_a_long_text() {
        let text = |bytes: usize| json!("ab".repeat(bytes / 2));
        let large = compile(&json!({ "pattern": "a[ab]{400}c" })).unwrap();
        assert_eq!(large.complaints(&text(1_000_000), tell).unwrap_err().code, Code::LimitReached);
        assert_eq!(told(&large, &text(1_000)).len(), 1);
        let small = compile(&json!({ "pattern": "^[a-z]+$" })).unwrap();
        assert!(told(&small, &text(1_000_000)).is_empty());
        for ordinary in ["^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$", "^[A-Z]{3}-\\d{4,8}$", "b+$"] {
            let ordinary = compile(&json!({ "pattern": ordinary })).unwrap();
            assert!(ordinary.complaints(&text(200_000), tell).is_ok(), "{ordinary:?}");
        }
    }

    #[test]
    fn complaints_are_listed_where_they_are_few() {
        let names: Vec<String> = (0..4_900).map(|n| format!("k{n:x}")).collect();
        let wide = compile(&json!({ "items": { "required": names } })).unwrap();
        assert_eq!(told(&wide, &json!([{}])).len(), TOLD);
        assert_eq!(told(&wide, &json!(vec![json!({}); 1_000])), ["it is too large to list where"]);
    }

    #[test]
    fn no_text_is_parsed_as_a_pattern() {
        let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "format": "regex" });
        assert!(told(&compile(&schema).unwrap(), &json!("(")).is_empty());
    }

    /// As many levels of a schema for each level of a value as there may be.
    #[test]
    fn the_deepest_check_has_stack_enough() {
        let nested =
            (0..120).fold(json!({ "items": { "$ref": "#" } }), |inner, _| json!({ "allOf": [inner] }));
        let value = (0..tenure_core::limits::JSON_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let check = move || {
            let compiled = compile(&nested).unwrap();
            assert!(!compiled.is_light(&json!([])), "that would be checked on a small stack");
            assert!(told(&compiled, &value).is_empty());
        };
        thread::Builder::new().stack_size(STACK).spawn(check).unwrap().join().unwrap();
    }

    #[tokio::test]
    async fn a_thread_that_hangs_keeps_only_its_own_tenant_waiting() {
        let (end, hang) = std::sync::mpsc::channel::<()>();
        let hung = tokio::spawn(on_behalf_of("flood".into(), aside(move || _ = hang.recv())));
        tokio::task::yield_now().await;
        let waits = tokio::spawn(on_behalf_of("flood".into(), aside(|| ())));
        assert_eq!(on_behalf_of("quiet".into(), aside(|| 7)).await.unwrap(), 7, "there is another thread");
        tokio::time::pause();
        for late in [hung, waits] {
            assert_eq!(late.await.unwrap().unwrap_err().code, Code::LimitReached);
        }
        drop(end);
    }
}
