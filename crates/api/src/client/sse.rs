//! Server-sent events as in the HTML standard: parses lines into frames.

use bytes::BytesMut;

/// The longest frame: an event's payload has at most 1 MiB, escaped.
const FRAME_BYTES: usize = 8 * 1024 * 1024;

/// One dispatched event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub event: String,
    pub id: Option<String>,
    pub data: String,
}

#[derive(Default)]
pub struct Parser {
    rest: BytesMut,
    frame: Frame,
}

impl Parser {
    /// Takes the received bytes and returns the frames that are complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, String> {
        self.rest.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line = self.rest.split_to(end + 1);
            let line = std::str::from_utf8(&line[..end]).map_err(|e| e.to_string())?;
            frames.extend(self.line(line.trim_end_matches('\r').to_owned()));
        }
        if self.rest.len() + self.frame.data.len() > FRAME_BYTES {
            return Err("an event that is too long".to_owned());
        }
        Ok(frames)
    }

    /// An empty line completes a frame; a frame without data is ignored.
    fn line(&mut self, line: String) -> Option<Frame> {
        if line.is_empty() {
            let mut frame = std::mem::take(&mut self.frame);
            frame.data.pop();
            return (!frame.data.is_empty()).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.frame.event = value.to_owned(),
            "id" => self.frame.id = Some(value.to_owned()),
            "data" => {
                self.frame.data.push_str(value);
                self.frame.data.push('\n');
            }
            // A comment, or a field that this client does not use.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let text =
            ": hello\n\nevent: event\r\nid: 1-2\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nretry: 5\n\ndata:x\n\n";
        let whole = Parser::default().push(text.as_bytes()).unwrap();
        assert_eq!(
            whole,
            [
                Frame { event: "event".into(), id: Some("1-2".into()), data: "{\"a\":\n1}".into() },
                Frame { event: String::new(), id: None, data: "x".into() },
            ]
        );
        for cut in 1..text.len() {
            let mut parser = Parser::default();
            let mut frames = parser.push(&text.as_bytes()[..cut]).unwrap();
            frames.extend(parser.push(&text.as_bytes()[cut..]).unwrap());
            assert_eq!(frames, whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = Parser::default();
        assert!((0..9).map(|_| parser.push(&[b'x'; 1 << 20])).any(|pushed| pushed.is_err()));
    }
}
