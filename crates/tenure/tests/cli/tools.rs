//! `tenure tools check`: a configuration's tools and policies, and the evaluation of a trial command.

use std::fs;

use tempfile::TempDir;

use crate::bed::{Said, tenure};

const SETTINGS: &str = r#"
[policy]
files = ["acme.cedar"]

[tools.send_email]
risk = "low"
redact = ["/password"]
schema = { type = "object", required = ["to"] }
"#;

const POLICY: &str = r#"
permit (principal, action == Action::"send_email", resource);

@reason("strangers")
@unless("approved")
forbid (principal, action, resource) unless { context.arguments.to like "*@acme.example" };
"#;

fn home() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tenure.toml"), SETTINGS).unwrap();
    fs::write(folder.path().join("acme.cedar"), POLICY).unwrap();
    folder
}

fn check(folder: &TempDir, more: &[&str]) -> Said {
    Said::of(tenure(folder.path()).args(["tools", "check"]).args(more).output().unwrap())
}

#[test]
fn a_configuration_is_read_with_everything_it_names() {
    let folder = home();
    let said = check(&folder, &[]).ends(0);
    assert!(said.out.contains("send_email  low"), "{}", said.out);
    assert!(said.err.contains("2 policies (version cedar-1-"), "{}", said.err);
    let listed = check(&folder, &["-o", "json"]).json();
    assert_eq!((&listed[0]["tool"], &listed[0]["executor"]), (&"send_email".into(), &"worker".into()));
    fs::write(
        folder.path().join("acme.cedar"),
        "\npermit (principal, action, resource) when { context.tiem.hour > 1 };",
    )
    .unwrap();
    let said = check(&folder, &[]).ends(4);
    assert!(said.err.contains("acme.cedar:2: `context` has no `tiem`: did you mean `time`?"), "{}", said.err);
}

#[test]
fn a_missing_program_is_a_configuration_error() {
    let folder = TempDir::new().unwrap();
    let tool = |command: &str, lookup: &str| {
        let calls = |program: &str| format!("{{ command = [\"{program}\"] }}");
        let (exec, asks) = (calls(command), calls(lookup));
        let text = format!(
            "[tools.notify]\nexecutor = \"exec\"\nexec = {exec}\nlookup = {{ by = \"exec\", exec = {asks} }}\n"
        );
        fs::write(folder.path().join("tenure.toml"), text).unwrap();
        check(&folder, &[])
    };
    assert!(tool("true", "/bin/sh").ends(0).err.contains("is valid"));
    for (command, lookup, missing) in
        [("/no/notify", "true", "/no/notify"), ("true", "no-such-thing", "no-such-thing")]
    {
        let said = tool(command, lookup).ends(4);
        assert!(
            said.err.contains(&format!("notify: there is no executable program `{missing}`")),
            "{}",
            said.err
        );
        assert!(!said.err.contains("is valid"), "{}", said.err);
    }
}

#[test]
fn a_command_is_tried_without_a_ledger() {
    let folder = home();
    let mail = |to: &str| {
        let arguments = format!(r#"{{"to":"{to}","password":"hunter2"}}"#);
        check(&folder, &["--tool", "send_email", "--target", to, "--arguments", &arguments])
    };
    assert!(
        mail("ana@acme.example").ends(0).out.starts_with("send_email allow\n  permitted by acme.cedar:2\n")
    );
    let said = mail("bob@example.com").ends(7);
    assert!(said.out.contains("needs_approval") && said.out.contains("strangers"), "{}", said.out);
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    let denied =
        check(&folder, &["-o", "json", "--tool", "rm", "--arguments", r#"{"to":"x@acme.example"}"#]).ends(4);
    assert!(denied.out.contains("no policy permits it"), "{}", denied.out);
    let refused = check(&folder, &["--tool", "send_email"]).ends(4);
    assert!(refused.err.contains("\"to\""), "{}", refused.err);
    check(&folder, &["--tool", "x", "--actor", "ana"]).ends(4);
    check(&folder, &["--target", "x"]).ends(2);
}
