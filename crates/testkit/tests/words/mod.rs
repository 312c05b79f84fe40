//! The words of comments and documentation: a sentence names its subject.

use std::path::Path;

/// A sentence that is not a question may not begin with these: its subject would be hidden.
const HIDDEN_SUBJECTS: [&str; 3] = ["What", "Who", "Those"];

/// Not used at all.
const VAGUE: [&str; 2] = ["whoever", "whatever"];

/// Every place in the prose of a file that breaks a rule.
pub fn findings(file: &Path, text: &str) -> Vec<String> {
    let is_code = file.extension().is_some_and(|extension| extension == "rs");
    let prose = if is_code { comments(text) } else { text.to_owned() };
    let mut findings = Vec::new();
    for Paragraph { line, text, is_cell } in paragraphs(&prose) {
        let text = without_quotes(&text);
        for (index, sentence) in sentences(&text).into_iter().enumerate() {
            let may_be_a_label = (is_code || is_cell) && index == 0;
            if let Some(rule) = broken_rule(sentence, may_be_a_label) {
                findings.push(format!("{}:{line}: {rule}: {sentence}", file.display()));
            }
        }
    }
    findings
}

/// A label is not a sentence, as in "What happens at the deadline".
fn broken_rule(sentence: &str, may_be_a_label: bool) -> Option<String> {
    let mut words = sentence.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let first = words.clone().next()?;
    let is_question = sentence.trim_end_matches([')', '*']).ends_with('?');
    if HIDDEN_SUBJECTS.contains(&first) && !is_question && (!may_be_a_label || first == "Those") {
        return Some(format!("begins with `{first}`"));
    }
    let vague = words.find(|word| VAGUE.iter().any(|vague| vague.eq_ignore_ascii_case(word)))?;
    Some(format!("says `{vague}`"))
}

/// The comments of a Rust file, line for line; all other lines are empty.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let comment = line.trim_start().strip_prefix("//")?;
        let comment = comment.trim_start_matches('/').trim_start_matches('!');
        Some(comment.strip_prefix(' ').unwrap_or(comment).to_owned())
    };
    text.lines().map(|line| comment(line).unwrap_or_default() + "\n").collect()
}

struct Paragraph {
    /// Its first line.
    line: usize,
    text: String,
    is_cell: bool,
}

/// The paragraphs, list items and table cells of a page. Code and headings are left out.
fn paragraphs(page: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let new = |line, text: &str, is_cell| Paragraph { line, text: text.to_owned(), is_cell };
    let (mut in_code, mut continues) = (false, false);
    for (line, text) in (1..).zip(page.lines()) {
        let words = text.trim();
        if words.starts_with("```") {
            in_code = !in_code;
            continues = false;
        } else if in_code || words.is_empty() || words.starts_with('#') {
            continues = false;
        } else if words.starts_with('|') {
            found.extend(words.split('|').map(|cell| new(line, cell.trim(), true)));
            continues = false;
        } else if let Some(item) = list_item(words) {
            found.push(new(line, item, false));
            continues = true;
        } else if continues {
            let paragraph = found.last_mut().expect("a paragraph has begun");
            paragraph.text += " ";
            paragraph.text += words;
        } else if !text.starts_with("    ") {
            found.push(new(line, words, false));
            continues = true;
        }
    }
    found
}

fn list_item(line: &str) -> Option<&str> {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(". ");
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered)
}

/// Leaves a placeholder for code, quotations and the targets of links.
fn without_quotes(paragraph: &str) -> String {
    let mut rest = paragraph;
    let mut kept = String::new();
    while let Some(start) = rest.find(['`', '"', '“']).into_iter().chain(rest.find("](")).min() {
        let (open, close) = match &rest[start..] {
            code if code.starts_with('`') => ("`", "`"),
            quote if quote.starts_with('"') => ("\"", "\""),
            quote if quote.starts_with('“') => ("“", "”"),
            _ => ("](", ")"),
        };
        let inside = &rest[start + open.len()..];
        let Some(end) = inside.find(close) else { break };
        kept += &rest[..start];
        kept += "_";
        rest = &inside[end + close.len()..];
    }
    kept + rest
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in paragraph.match_indices(['.', '!', '?']) {
        // A mark of emphasis or a bracket may follow the stop.
        let after = paragraph[at + 1..].trim_start_matches(['*', ')']);
        if after.starts_with(' ') {
            let end = paragraph.len() - after.len();
            found.push(paragraph[start..end].trim());
            start = end;
        }
    }
    found.push(paragraph[start..].trim());
    found
}
