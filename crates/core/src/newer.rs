//! Stored data that a newer version of Tenure wrote. An older version reads it during a rolling upgrade and must not report it
//! as damage.

/// Whether a stored text could not be read only because it has a word of a closed list, or a field, that this version does
/// not know. `why` is serde's error.
pub fn is_newer(why: &str) -> bool {
    why.starts_with("unknown variant") || why.starts_with("unknown field")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::is_newer;
    use crate::{model::ReasonCode, schedule::Plan};

    #[test]
    fn an_unknown_word_or_field_is_not_damage() {
        let why = |text: &str| serde_json::from_str::<ReasonCode>(text).unwrap_err().to_string();
        assert!(is_newer(&why("\"a_reason_of_tomorrow\"")));
        assert!(!is_newer(&why("\"a_reas")));
        assert!(!is_newer(&why("7")));
        let plan = serde_json::from_str::<Plan>(r#"{"a_field_of_tomorrow":1}"#).unwrap_err();
        assert!(is_newer(&plan.to_string()), "{plan}");
        let named = serde::de::value::StrDeserializer::<serde::de::value::Error>::new("tomorrow");
        assert!(is_newer(&ReasonCode::deserialize(named).unwrap_err().to_string()));
    }
}
