//! House rules that a machine can check.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

mod repo;
mod words;
use repo::assert_none;

const LONGEST: usize = 700;

const SUBJECT: usize = 72;

/// Older commits have longer subjects.
const LAST_LONG_SUBJECT: &str = "bf7f732f2856843239984f95197f9c7ee6bb6742";

/// Left behind by unfinished work. Written in halves, or this file would find itself.
const UNFINISHED: [&str; 4] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("#[ig", "nore"), concat!("db", "g!(")];

const PAUSE: &str = concat!("sle", "ep(");

#[test]
fn no_source_file_is_too_long() {
    let long = sources().into_iter().filter_map(|(file, text)| {
        let lines = text.lines().count();
        (lines > LONGEST).then(|| format!("{}: {lines} lines", file.display()))
    });
    assert_none(&format!("a file of more than {LONGEST} lines is two things"), &long.collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_unfinished() {
    let found = sources().into_iter().flat_map(|(file, text)| lines_with(&file, &text, &UNFINISHED));
    assert_none("finish it, or leave it out", &found.collect::<Vec<_>>());
}

#[test]
fn tests_wait_for_events_not_for_time() {
    let in_tests = |file: &Path| file.components().any(|part| part == Component::Normal("tests".as_ref()));
    let tests = sources().into_iter().filter(|(file, _)| in_tests(file));
    let found = tests.flat_map(|(file, text)| lines_with(&file, &text, &[PAUSE]));
    assert_none("a test that sleeps is slow or flaky", &found.collect::<Vec<_>>());
}

#[test]
fn every_source_file_is_compiled() {
    let sources = sources();
    let is_declared = |file: &Path| {
        let (name, parents) = declaration(file);
        let in_parent = sources.iter().filter(|(other, _)| parents.contains(other));
        in_parent.flat_map(|(_, text)| text.lines()).any(|line| declares(line, &name))
    };
    let dead = sources.iter().filter(|(file, _)| is_module(file) && !is_declared(file));
    let dead: Vec<_> = dead.map(|(file, _)| file.display().to_string()).collect();
    assert_none("no `mod` leads to these", &dead);
}

#[test]
fn sql_names_its_states() {
    let ends = ["rs", "sql"].map(Some);
    let has_sql = |file: &PathBuf| {
        let is_source = ["crates", "bench", "faults"].iter().any(|folder| file.starts_with(folder));
        is_source && ends.contains(&file.extension().and_then(|end| end.to_str()))
    };
    // The first fills the names in, and the other is this file: both have examples.
    let has_examples =
        |file: &PathBuf| file.ends_with("store/src/states.rs") || file.ends_with("testkit/tests/tidy.rs");
    let files = repo::files().into_iter().filter(|file| has_sql(file) && !has_examples(file));
    let found = files.flat_map(|file| {
        let text = repo::read(&file);
        let places = state_numbers(&text).into_iter();
        places.map(|(line, sql)| format!("{}:{line}: {sql}", file.display())).collect::<Vec<_>>()
    });
    assert_none("name the states, as crates/store/src/states.rs says", &found.collect::<Vec<_>>());
}

#[test]
fn every_document_can_be_reached() {
    let mut reached = BTreeSet::new();
    let mut next = vec![PathBuf::from("README.md"), PathBuf::from("ARCHITECTURE.md")];
    while let Some(file) = next.pop() {
        if repo::root().join(&file).is_file() && reached.insert(file.clone()) && is_markdown(&file) {
            next.extend(links(&file));
        }
    }
    let documents = repo::files().into_iter().filter(|file| file.starts_with("docs"));
    let lost: Vec<_> =
        documents.filter(|file| !reached.contains(file)).map(|file| file.display().to_string()).collect();
    assert_none("no link leads here from README.md or ARCHITECTURE.md", &lost);
}

#[test]
fn every_link_leads_somewhere() {
    let documents = repo::files().into_iter().filter(|file| is_markdown(file));
    let broken: Vec<_> = documents
        .flat_map(|file| links(&file).into_iter().map(move |target| (file.clone(), target)))
        .filter(|(_, target)| !repo::root().join(target).exists())
        .map(|(file, target)| format!("{}: {}", file.display(), target.display()))
        .collect();
    assert_none("links to files that do not exist", &broken);
}

#[test]
fn every_link_to_a_heading_finds_it() {
    let mut broken = Vec::new();
    for file in repo::files().into_iter().filter(|file| is_markdown(file)) {
        let page = repo::read(&file);
        for (target, heading) in targets(&page).filter_map(|target| target.split_once('#')) {
            let target = if target.is_empty() { file.clone() } else { resolve(&file, target) };
            if is_markdown(&target) && !headings(&repo::read(&target)).iter().any(|name| name == heading) {
                broken.push(format!("{}: {}#{heading}", file.display(), target.display()));
            }
        }
    }
    assert_none("links to headings that do not exist", &broken);
}

#[test]
fn sentences_name_their_subject() {
    let texts = repo::files().into_iter().filter(|file| is_markdown(file) || is_rust(file));
    let found: Vec<_> = texts.flat_map(|file| words::findings(&file, &repo::read(&file))).collect();
    assert_none("name the subject, in the usual word", &found);
}

#[test]
fn commit_subjects_are_short() {
    let range = format!("{LAST_LONG_SUBJECT}..HEAD");
    let log = Command::new("git")
        .args(["log", "-20", "--no-merges", "--format=%s", &range])
        .current_dir(repo::root())
        .output();
    // A copy without history, or with a part of it, has nothing to check.
    let log = log.ok().filter(|log| log.status.success()).map(|log| log.stdout).unwrap_or_default();
    let subjects = String::from_utf8_lossy(&log);
    let long: Vec<_> = subjects.lines().filter(|subject| is_long(subject)).map(str::to_owned).collect();
    assert_none(&format!("a commit subject has at most {SUBJECT} characters"), &long);
}

#[test]
fn the_rules_see_what_they_look_for() {
    let text = format!("fn a() {{\n    {}later)\n}}", UNFINISHED[0]);
    assert_eq!(
        lines_with(Path::new("a.rs"), &text, &UNFINISHED),
        [format!("a.rs:2: {}later)", UNFINISHED[0])]
    );

    assert!(declares("mod lease;", "lease"));
    assert!(declares("    pub(crate) mod lease; // why", "lease"));
    assert!(declares("#[cfg(test)] mod lease;", "lease"));
    for line in ["// mod lease;", "mod release;", "pub mod lease {", "use lease;"] {
        assert!(!declares(line, "lease"), "{line}");
    }

    for line in [
        "WHERE h.state = 0 OR",
        "state<11",
        "s.state IS NOT 0",
        "to_state IN (1, 9)",
        "ANY('{0,1}'::smallint[])",
        "WHERE 11 > w.state",
        "CASE state WHEN 3 THEN 1 END",
        "state::int = 3",
    ] {
        assert!(has_state_number(line), "{line}");
    }
    for line in [
        "SET state = ?2, seq = ?3",
        "{h.state is held}",
        "state == 1",
        "'{source,id}'",
        "attempt = 1 AND state = ?2",
        "0 => state,",
        "let page: i64 = state.page()",
    ] {
        assert!(!has_state_number(line), "{line}");
    }
    let divided = "SELECT 1 FROM work\n WHERE w.state \\\n IN (1, 9)\n";
    assert_eq!(state_numbers(divided), [(2, "WHERE w.state \\".to_owned())]);

    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    for (file, name, parents) in [
        ("crates/a/src/b.rs", "b", ["crates/a/src/lib.rs", "crates/a/src/main.rs"].as_slice()),
        ("crates/a/src/b/c.rs", "c", ["crates/a/src/b.rs", "crates/a/src/b/mod.rs"].as_slice()),
        ("crates/a/src/b/mod.rs", "b", ["crates/a/src/lib.rs", "crates/a/src/main.rs"].as_slice()),
        ("bench/src/bin/x/y.rs", "y", ["bench/src/bin/x/main.rs"].as_slice()),
    ] {
        let (found, candidates) = declaration(Path::new(file));
        assert_eq!(found, name, "{file}");
        assert!(paths(parents).iter().all(|parent| candidates.contains(parent)), "{file}: {candidates:?}");
    }
    for (file, module) in [
        ("crates/a/src/b.rs", true),
        ("bench/src/b.rs", true),
        ("faults/src/b/c.rs", true),
        ("crates/a/src/lib.rs", false),
        ("bench/src/bin/x.rs", false),
        ("bench/src/bin/x/main.rs", false),
        ("bench/src/bin/x/y.rs", true),
        ("crates/a/tests/b.rs", false),
    ] {
        assert_eq!(is_module(Path::new(file)), module, "{file}");
    }

    let page = "[a](a.md#part) ![b](../b.svg \"title\") [c](https://c.example) [d](#here)\n[e]: <../e.md>\n";
    assert_eq!(
        links_of(Path::new("docs/adr/x.md"), page),
        paths(&["docs/adr/a.md", "docs/b.svg", "docs/e.md"])
    );
    assert_eq!(
        headings("# Schedules (cron)\ntext\n### What `verify` finds\n"),
        ["schedules-cron", "what-verify-finds"]
    );
}

#[test]
fn the_rules_of_words_see_what_they_look_for() {
    let broken = |file: &str, text: &str| words::findings(Path::new(file), text).len();
    for text in [
        "It is one. What joined says the same.",
        "It is done (now). Whoever did it is named.",
        "- Item.\n  Those of one tenant\n  are counted.",
        "| a | It is. What it is |",
        "**It is so.** Who may call is written down.",
        "It runs, whatever happens.",
    ] {
        assert_eq!(broken("a.md", text), 1, "{text}");
        let comment: String = text.lines().map(|line| format!("    /// {line}\n")).collect();
        assert_eq!(broken("a.rs", &comment), 1, "{text}");
        assert_eq!(broken("a.rs", &format!("let text = \"{text}\";")), 0, "{text}");
        assert_eq!(broken("a.md", &format!("```\n{text}\n```\n")), 0, "{text}");
    }
    assert_eq!(broken("a.md", "What joined says the same."), 1);
    for text in [
        "What is it waiting for? A person.",
        "- **Who holds it?** A worker.",
        "## What is checked",
        "`What` is a name. It says \"Whatever.\" to us.",
        "See [this](whatever.md).",
        "It says what it does, and who did it.",
        "    What is indented is code.",
        "| What happens at the deadline. |",
    ] {
        assert_eq!(broken("a.md", text), 0, "{text}");
    }
    assert_eq!(broken("a.rs", "/// What happens at the deadline."), 0);
    assert!(is_long(&"ä".repeat(SUBJECT + 1)) && !is_long(&"ä".repeat(SUBJECT)));
}

/// Every Rust file with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let files = repo::files().into_iter().filter(|file| is_rust(file));
    files.map(|file| (file.clone(), repo::read(&file))).collect()
}

fn lines_with(file: &Path, text: &str, patterns: &[&str]) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.filter(|(_, line)| patterns.iter().any(|pattern| line.contains(pattern)));
    found.map(|(index, line)| format!("{}:{}: {}", file.display(), index + 1, line.trim())).collect()
}

/// The lines in which a state is compared with a number, or which end with one side of such a comparison.
fn state_numbers(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_divided = |index: usize| {
        let (Some(line), Some(next)) = (lines.get(index), lines.get(index + 1)) else { return false };
        let both = format!("{} {}", line.trim_end().trim_end_matches('\\').trim_end(), next.trim_start());
        !has_state_number(next) && has_state_number(&both)
    };
    let found = (0..lines.len()).filter(|index| has_state_number(lines[*index]) || is_divided(*index));
    found.map(|index| (index + 1, lines[index].trim().to_owned())).collect()
}

/// Whether a line of SQL compares a state with a number, or has an array of numbers.
fn has_state_number(line: &str) -> bool {
    let starts = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let ends = |text: &str| {
        let last = text.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
    };
    let symbols = ["<>", "<=", ">=", "=", "<", ">"];
    let words = ["IS NOT", "IS", "NOT IN", "IN", "BETWEEN", "WHEN"];
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut parts = line.split("state").peekable();
    while let (Some(before), Some(after)) = (parts.next(), parts.peek()) {
        let after =
            after.strip_prefix("::").map_or(*after, |cast| cast.trim_start_matches(is_name)).trim_start();
        let compared = symbols.iter().chain(&words).find_map(|operator| after.strip_prefix(operator));
        let before = before.trim_end_matches(is_name).trim_end();
        let compares = symbols.iter().find_map(|operator| before.strip_suffix(operator));
        if compared.is_some_and(|rest| starts(rest.trim_start_matches([' ', '('])))
            || compares.is_some_and(|rest| ends(rest.trim_end()))
        {
            return true;
        }
    }
    line.split("'{").skip(1).any(starts)
}

/// Whether a file is compiled only if some other file says `mod`.
fn is_module(file: &Path) -> bool {
    let parts: Vec<_> = file.iter().filter_map(|part| part.to_str()).collect();
    let inside = match parts[..] {
        ["crates", _, "src", ref inside @ ..] | ["bench" | "faults", "src", ref inside @ ..] => inside,
        _ => return false,
    };
    !matches!(inside, ["lib.rs" | "main.rs"] | ["bin", _] | ["bin", _, "main.rs"])
}

/// The module's name, and the files that may declare it.
fn declaration(file: &Path) -> (String, Vec<PathBuf>) {
    let folder = file.parent().expect("a file is in a folder");
    if file.ends_with("mod.rs") {
        return declaration(&folder.with_extension("rs"));
    }
    let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
    let roots = ["lib.rs", "main.rs", "mod.rs"].map(|root| folder.join(root));
    (name, roots.into_iter().chain([folder.with_extension("rs")]).collect())
}

fn declares(line: &str, name: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default().trim_end();
    code.strip_suffix(';').and_then(|code| code.strip_suffix(name)).is_some_and(|code| {
        let mut words = code.trim_end().rsplit([' ', ')']);
        code.ends_with(' ') && words.next() == Some("mod")
    })
}

fn is_long(subject: &str) -> bool {
    subject.chars().count() > SUBJECT
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|ext| ext == "rs")
}

fn is_markdown(file: &Path) -> bool {
    file.extension().is_some_and(|ext| ext == "md")
}

fn links(file: &Path) -> Vec<PathBuf> {
    links_of(file, &repo::read(file))
}

/// The files that a page links to, relative to the root.
fn links_of(file: &Path, page: &str) -> Vec<PathBuf> {
    targets(page)
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty())
        .map(|target| resolve(file, target))
        .collect()
}

/// What a page links to inside the repository, inline or by reference.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let inline = page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    let by_reference = page.lines().filter_map(|line| {
        let (_, target) = line.strip_prefix('[')?.split_once("]: ")?;
        target.split_whitespace().next()
    });
    inline
        .chain(by_reference)
        .map(|target| target.trim_matches(['<', '>']))
        .filter(|target| !target.contains(':'))
}

/// The headings of a page, as links name them.
fn headings(page: &str) -> Vec<String> {
    let name = |heading: &str| {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    page.lines().filter(|line| line.starts_with('#')).map(|line| name(line.trim_start_matches('#'))).collect()
}

fn resolve(file: &Path, target: &str) -> PathBuf {
    let mut path = file.parent().expect("a file is in a folder").to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}
