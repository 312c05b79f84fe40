//! The schemas of the wire types.
#![cfg(feature = "openapi")]

use tenure_api::wire::{Page, Work};
use utoipa::{PartialSchema, ToSchema};

#[test]
fn a_word_is_its_list_in_the_contract() {
    let work = serde_json::to_value(Work::schema()).unwrap();
    assert_eq!(work["properties"]["state"]["$ref"], "#/components/schemas/State");
    let mut schemas = Vec::new();
    Page::<Work>::schemas(&mut schemas);
    let names: Vec<_> = schemas.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"State") && names.contains(&"Timestamp"), "{names:?}");
}
