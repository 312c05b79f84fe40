//! Every accepted value survives new → text → value → new, and a record that contains it.

use proptest::{collection, num, prelude::*};
use serde_json::{Map, Value, json};
use tenure_core::{
    Payload,
    model::{OnTimeout, WaitDetail},
};

fn number() -> impl Strategy<Value = Value> {
    let around_2_53 = (-4_i64..=4).prop_map(|n| json!((1_i64 << 53) + n));
    // Floats without a fraction, of every size: RFC 8785 writes those below 1e21 as integers.
    let whole = (num::i64::ANY, 0_i32..25).prop_map(|(n, ten)| json!((n % 1_000) as f64 * 10_f64.powi(ten)));
    let floats = num::f64::NORMAL | num::f64::SUBNORMAL | num::f64::ZERO;
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        around_2_53,
        whole,
        floats.prop_map(Value::from)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        let fields = collection::vec((any::<String>(), inner.clone()), 0..6);
        prop_oneof![
            collection::vec(inner, 0..6).prop_map(Value::from),
            fields.prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn survives(value: &Value) {
    let Ok(payload) = Payload::new(value) else { return };
    assert_eq!(Payload::new(&payload.value()).as_ref(), Ok(&payload), "{value}");
    assert_eq!(Payload::stored(payload.text().to_owned()), payload);
    let detail = WaitDetail {
        on_timeout: OnTimeout::Default,
        schema: Some(payload.clone()),
        default: Some(payload),
        ..WaitDetail::default()
    };
    let text = serde_json::to_string(&detail).unwrap();
    assert_eq!(serde_json::from_str::<WaitDetail>(&text).ok(), Some(detail), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_accepted_value_survives_a_round_trip(value in value()) {
        survives(&value);
    }

    #[test]
    fn every_accepted_number_survives_a_round_trip(value in number()) {
        survives(&value);
    }
}
