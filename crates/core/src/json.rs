//! JSON of values that always serialize, written into a buffer of about the right size, because a text that
//! outgrows its buffer is copied each time.

use serde::Serialize;

pub(crate) fn text(part: &impl Serialize, room: usize) -> String {
    let mut text = Vec::with_capacity(room);
    serde_json::to_writer(&mut text, part).expect("records are plain structs with string keys");
    String::from_utf8(text).expect("JSON is UTF-8")
}
