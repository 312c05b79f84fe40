//! Compiles JSON schemas from callers, with the same limits for every use: cost is bounded, patterns run in
//! linear time, references lead to nothing outside, and messages are few and short.

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

/// The limit on reported violations, and on the length of each.
const TOLD: usize = 3;
const TOLD_CHARS: usize = 200;
/// Violations are listed only up to this number of checks: the validator keeps all of them in memory.
const LISTED_CHECKS: u64 = 100_000;

/// Up to this number, checks run on the caller's thread.
const LIGHT_CHECKS: u64 = 10_000;

/// The sizes, in bytes, that are tried for a compiled pattern; the last is the limit.
const PATTERN_BYTES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10];

/// The time limit for compiling and applying schemas.
const DEADLINE: Duration = Duration::from_secs(2);
/// The number of threads that do so at a time, shared fairly between tenants. A thread keeps its place until
/// it ends, even past the time limit.
static THREADS: LazyLock<Arc<Fair>> = LazyLock::new(|| Fair::new(2, 1));
/// The stack for a schema and a value of the greatest depth: the validator recurses for every level of both.
const STACK: usize = 64 * 1024 * 1024;

/// A compiled schema.
#[derive(Debug)]
pub struct Compiled {
    validator: Validator,
    cost: Cost,
}

/// Compiles a schema, or returns the reason why it cannot be used.
pub fn compile(schema: &Value) -> Result<Compiled, String> {
    let cost = cost(schema, compiled_bytes)?;
    let validator = built(schema, PATTERN_BYTES[PATTERN_BYTES.len() - 1])?;
    Ok(Compiled { validator, cost })
}

fn built(schema: &Value, pattern_bytes: usize) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes);
    // The cost of checking whether a text is a pattern grows with the square of its length.
    let options = jsonschema::options().with_pattern_options(patterns).with_format("regex", |_: &str| true);
    options.build(schema).map_err(|error| shortened(error.to_string()))
}

/// The smallest of a few sizes that fits the compiled pattern.
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
    /// Whether checking a value takes less time than handing it to another thread, and a small stack is
    /// enough.
    pub fn is_light(&self, value: &Value) -> bool {
        self.cost.recursions == 0 && self.cost.checks(value) <= LIGHT_CHECKS
    }

    /// The first violations, or an error if the value needs too many checks.
    pub fn complaints(
        &self,
        value: &Value,
        tell: impl Fn(ValidationError<'_>) -> String,
    ) -> Result<Vec<String>, Refusal> {
        let checks = self.cost.checks(value);
        if checks > CHECKS {
            let detail = format!(
                "The schema needs {checks} checks of this JSON, and the limit is {CHECKS}. Send less, or use a \
                 simpler schema."
            );
            return Err(Refusal::new(Code::LimitReached, detail));
        }
        if self.validator.is_valid(value) {
            return Ok(Vec::new());
        }
        if checks > LISTED_CHECKS {
            return Ok(vec!["the value is too large to list the violations".to_owned()]);
        }
        Ok(self.validator.iter_errors(value).take(TOLD).map(|error| shortened(tell(error))).collect())
    }
}

/// Compiles or applies schemas on a separate thread with a time limit, so that no other call waits for it.
/// Threads are shared fairly between tenants, and no tenant gets all of them.
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
        Ok(Err(_)) => Err(too_long("the check failed. Use a simpler schema.")),
        Err(_) => Err(too_long("it took longer than two seconds. Use a simpler schema, or try again later.")),
    }
}

/// A message may quote a value, and be as long as that.
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
        assert_eq!(
            told(&wide, &json!(vec![json!({}); 1_000])),
            ["the value is too large to list the violations"]
        );
    }

    #[test]
    fn no_text_is_parsed_as_a_pattern() {
        let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "format": "regex" });
        assert!(told(&compile(&schema).unwrap(), &json!("(")).is_empty());
    }

    /// The greatest depth of schema for each level of a value.
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
