//! An operator's mistakes, each with the line and the fix that the error must name.

use tenure_core::policy::{OnSpinning, OnStalled};

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse("tenure.toml", text, Overlay::default())
}

#[test]
fn nothing_written_is_a_whole_configuration() {
    let config = parse("").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7171");
    assert_eq!(config.db, Database::Sqlite("tenure.db".into()));
    assert_eq!(config.token_file, PathBuf::from("tenure.db.token"));
    assert_eq!(config.live.sources["manual"].policy, WorkPolicy::default());
}

#[test]
fn sources_start_from_the_defaults_and_override_them() {
    let text = r#"
        [defaults]
        lease = { ttl = "9s", renew = "3s", grace = "1s" }
        waits = { user = "1h" }

        [sources.telegram]
        retry = { max_attempts = 5, multiplier = 1.5 }
        timeouts = { execution = "10m" }
        waits = { approval = "2h" }
    "#;
    let live = parse(text).unwrap().live;
    let telegram = &live.sources["telegram"];
    assert_eq!(telegram.policy.lease.ttl_ms, 9_000);
    assert_eq!(telegram.policy.retry.multiplier_permille, 1_500);
    assert_eq!(telegram.policy.timeouts.execution_ms, Some(600_000));
    assert_eq!(telegram.waits[&WaitKind::User], Duration::from_secs(3_600));
    assert_eq!(telegram.waits[&WaitKind::Approval], Duration::from_secs(7_200));
    assert_eq!(live.sources["manual"].policy.lease.ttl_ms, 9_000);
    assert!(live.settings().policy("telegram", "reply", &Default::default()).is_ok());
}

#[test]
fn kinds_inherit_from_their_source_and_it_from_the_defaults() {
    let text = r#"
        [defaults]
        spinning = { after = "10m" }
        stalled = "prompt"

        [defaults.kinds.digest]
        stalled = "page"

        [sources.telegram]
        lease = { ttl = "15m", renew = "5m", grace = "1s" }

        [sources.telegram.kinds.reply]
        spinning = { after = "20m", then = "stop_renewing" }
    "#;
    let settings = parse(text).unwrap().live.settings();
    let of = |system: &str, kind: &str| {
        let policy = settings.policy(system, kind, &Default::default()).unwrap();
        let spinning = policy.spinning.unwrap();
        (spinning.after_ms / 60_000, spinning.then, policy.stalled)
    };
    assert_eq!(of("manual", "reply"), (10, OnSpinning::Mark, OnStalled::Prompt));
    assert_eq!(of("manual", "digest"), (10, OnSpinning::Mark, OnStalled::Page));
    assert_eq!(of("telegram", "digest"), (15, OnSpinning::Mark, OnStalled::Page));
    assert_eq!(of("telegram", "reply"), (20, OnSpinning::StopRenewing, OnStalled::Prompt));
    assert_eq!(parse("").unwrap().live.settings().first_spinning(), None, "nothing is judged unless asked");
}

#[test]
fn the_anchor_is_exported_to_a_file_and_a_webhook() {
    let text = "[anchor]\nfile = \"out/anchor.json\"\nwebhook = { url = \"https://hooks.example/anchor\" }";
    let export = Config::parse("etc/tenure.toml", text, Overlay::default()).unwrap().live.anchor.unwrap();
    assert_eq!(export.every, Duration::from_secs(3_600));
    assert_eq!(export.file, Some(PathBuf::from("etc/out/anchor.json")));
    assert_eq!(export.webhook.unwrap().url.as_ref().unwrap().host(), Some("hooks.example"));
    assert_eq!(parse("").unwrap().live.anchor, None);
    let table = [
        ("\n[anchor]\nevery = \"1h\"", 2, "name where the anchor is exported to"),
        ("[anchor]\nfile = \"a\"\nevery = \"5ms\"", 3, "at least 1s"),
        ("[anchor]\nwebhook = { timeout = \"5s\" }", 2, "needs its `url`"),
        ("[anchor]\nfil = \"a\"", 2, "did you mean `file`?"),
    ];
    for (text, line, fix) in table {
        let error = parse(text).unwrap_err();
        assert_eq!(error.line, Some(line), "{text}: {error}");
        assert!(error.message.contains(fix), "{text}: {error}");
    }
}

#[test]
fn every_mistake_names_its_line_and_its_fix() {
    let table = [
        ("listn = \"127.0.0.1:1\"", 1, "did you mean `listen`?"),
        ("\n\nzzz = 1", 3, "unknown key `zzz`, expected one of"),
        ("\nlisten = \"7171\"", 2, "write ip:port"),
        ("listen = 7171", 1, "`listen`: invalid type: integer `7171`, expected a string"),
        ("db = \"x\"\ndrain = \"20\"", 2, "a whole number and ms, s, m, h or d"),
        ("\nhosts = [\"ok.example\", \"https://bad\"]", 2, "without scheme"),
        ("origins = [\"ops.example.com\"]", 1, "write scheme and host"),
        ("[rate]\nper_second = 0", 2, "give at least 1"),
        ("[tls]\ncert = \"a.pem\"", 1, "missing key `key`"),
        (
            "\n[sources.x]\nlease = { ttl = \"10s\", renew = \"9s\", grace = \"1s\" }",
            3,
            "ttl must be at least 3 × renew, and renew at least 1",
        ),
        ("[sources.x]\nretry = { max_attempts = 0 }", 2, "max_attempts ≥ 1"),
        ("[sources.x]\n\ntimeouts = { start = \"0s\" }", 3, "leave it out for no deadline"),
        ("[sources.x]\nleese = 1", 2, "did you mean `lease`?"),
        ("[sources.x]\n\nspinning = { after = \"44s\" }", 3, "after must be at least that, not 44000"),
        ("[sources.x.kinds.y]\nspinning = { after = \"1s\" }", 2, "after must be at least that"),
        ("[sources.x]\nspinning = { after = \"5m\", then = \"kill\" }", 2, "unknown value `kill`"),
        ("[sources.x]\nstalled = \"retry\"", 2, "unknown value `retry`"),
        ("[sources.x.kinds.y]\nlease = 1", 2, "unknown key `lease`"),
        ("[sources.x]\nwaits = { usr = \"1h\" }", 2, "unknown value `usr`"),
        ("[alerts]\nstaled = 3", 2, "did you mean `stalled`?"),
        ("\n[sources.\"\"]", 2, "`source` is empty"),
        ("[alerts]\nstalled = true", 2, "or false for never"),
        ("db = ", 1, "string"),
    ];
    for (text, line, fix) in table {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, Some(line), "{text}: {error}");
        assert!(error.to_string().contains(fix), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("tenure.toml:{line}: ")), "{error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let flags = Overlay {
        db: Some("postgres://localhost/x".into()),
        listen: Some("0.0.0.0:80".into()),
        allow_plain_http: true,
        hosts: vec!["Tenure.Example.Com".into()],
        ..Overlay::default()
    };
    let config = Config::parse("f", "db = \"a.db\"\nlisten = \"127.0.0.1:9\"", flags).unwrap();
    assert_eq!(config.listen.port(), 80);
    assert_eq!(format!("{:?}", config.db), "postgres");
    assert_eq!(config.live.hosts, ["tenure.example.com"]);
    let bad = Overlay { listen: Some("x".into()), ..Overlay::default() };
    assert!(Config::parse("f", "", bad).unwrap_err().to_string().starts_with("--listen: "));
    let half = Overlay { tls_cert: Some("c.pem".into()), ..Overlay::default() };
    assert!(Config::parse("f", "", half).unwrap_err().to_string().contains("give both"));
}

#[test]
fn tokens_do_not_cross_the_network_unencrypted_unless_a_flag_says_so() {
    for beyond in ["0.0.0.0:7171", "[::]:7171", "192.168.1.7:7171"] {
        let listen = format!("listen = \"{beyond}\"");
        let error = parse(&listen).unwrap_err().to_string();
        assert!(error.contains("--allow-plain-http") && error.contains("TLS"), "{error}");
        assert!(parse(&format!("{listen}\nallow_plain_http = true")).is_ok());
        assert!(parse(&format!("{listen}\n[tls]\ncert = \"c\"\nkey = \"k\"")).is_ok());
    }
    for here in ["127.0.0.1:7171", "127.8.8.8:1", "[::1]:7171"] {
        assert!(parse(&format!("listen = \"{here}\"")).is_ok(), "{here}");
    }
}

#[test]
fn secrets_that_everybody_can_read_are_refused_unless_a_flag_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let load = |path: &Path, allow_readable_secrets| {
        Config::load(Some(path), Overlay { allow_readable_secrets, ..Overlay::default() })
    };
    let tool = "[tools.x]\nexecutor = \"http\"\n[tools.x.http]\nurl = \"https://a.example\"\n";
    write("wide", "hunter2\n", 0o644);
    write("narrow", "hunter2\n", 0o640);
    for (text, mode, fine) in [
        ("db = \"x.db\"".to_owned(), 0o644, true),
        ("db = \"postgres://u@h/d\"".to_owned(), 0o644, true),
        ("db = \"postgres://u:hunter2@h/d\"".to_owned(), 0o644, false),
        ("db = \"postgres://u:hunter2@h/d\"".to_owned(), 0o600, true),
        ("db_file = \"wide\"".to_owned(), 0o644, false),
        ("db_file = \"narrow\"".to_owned(), 0o644, true),
        (format!("{tool}headers = {{ authorization = \"hunter2\" }}"), 0o644, false),
        (format!("{tool}headers = {{ authorization = \"hunter2\" }}"), 0o600, true),
        (format!("{tool}headers_file = {{ authorization = \"wide\" }}"), 0o600, false),
        (format!("{tool}headers_file = {{ authorization = \"narrow\" }}"), 0o644, true),
        (format!("token_file = {:?}", folder.path().join("wide")), 0o600, false),
        (format!("token_file = {:?}", folder.path().join("narrow")), 0o600, true),
        (format!("[tls]\ncert = \"c\"\nkey = {:?}", folder.path().join("wide")), 0o600, false),
        (format!("[tls]\ncert = \"c\"\nkey = {:?}", folder.path().join("narrow")), 0o600, true),
    ] {
        let path = write("tenure.toml", &text, mode);
        let read = load(&path, false);
        assert_eq!(read.is_ok(), fine, "{text} {mode:o}: {read:?}");
        if let Err(error) = read {
            let error = error.to_string();
            assert!(error.contains("chmod 600") && !error.contains("hunter2"), "{error}");
        }
        assert!(load(&path, true).is_ok(), "{text}");
        assert!(
            load(&write("tenure.toml", &format!("allow_readable_secrets = true\n{text}"), mode), false)
                .is_ok()
        );
    }
}

#[test]
fn a_secret_is_named_by_its_place_once() {
    let env = |name: &str| (name == "DB").then(|| "postgres://u:p@h/d".to_owned());
    let parse = |text: &str| Config::parse_in("t", text, Overlay::default(), &env);
    assert!(matches!(parse("db_env = \"DB\"").unwrap().db, Database::Postgres(_)));
    assert!(parse("db_env = \"NONE\"").unwrap_err().to_string().contains("has no `NONE`"));
    assert!(parse("db_env = \"DB\"\ndb = \"x.db\"").unwrap_err().to_string().contains("in one place"));
    let tool = "[tools.x]\nexecutor = \"http\"\n[tools.x.http]\nurl = \"https://a.example\"\n";
    assert!(parse(&format!("{tool}headers_env = {{ authorization = \"DB\" }}")).is_ok());
    let twice = format!("{tool}headers_env = {{ x-key = \"DB\" }}\nheaders = {{ X-Key = \"v\" }}");
    assert!(parse(&twice).unwrap_err().to_string().contains("given twice"));
    let both = format!("{tool}secret_env = \"DB\"\nsecret_file = \"f\"");
    assert!(parse(&both).unwrap_err().to_string().contains("keep one of"));
}

#[test]
fn the_file_of_the_reference_page_is_sound_and_says_the_defaults() {
    let page = include_str!("../../../../docs/configuration.md");
    let written = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (written, plain) = (parse(written).unwrap(), parse("").unwrap());
    assert_eq!(written.live.alerts, plain.live.alerts);
    assert_eq!(written.live.rate, plain.live.rate);
    assert_eq!(written.live.sources["manual"].policy, plain.live.sources["manual"].policy);
    assert_eq!((written.db, written.listen, written.drain), (plain.db, plain.listen, plain.drain));
    let (mail, default) = (&written.live.tools.get("send_email").facts, &plain.live.tools.get("x").facts);
    assert_eq!((mail.native_window_ms, mail.approval_ms), (default.native_window_ms, default.approval_ms));
    assert_eq!((mail.retry, mail.max_unknowns), (default.retry, default.max_unknowns));
    for kind in WaitKind::ALL {
        let after = written.live.sources["manual"].waits.get(&kind).map(Duration::as_millis);
        let default = u128::from(kind.default_timeout_ms());
        assert_eq!(after, Some(default), "`waits` in docs/configuration.md: {kind:?} in ms");
    }
}

#[test]
fn thresholds_can_be_switched_off() {
    let live = parse("[alerts]\nstalled = false\nopen_age = \"24h\"").unwrap().live;
    assert_eq!(live.alerts.stalled, None);
    assert_eq!(live.alerts.open_age, Some(Duration::from_secs(86_400)));
    assert_eq!(live.alerts.expired_leases, Some(0));
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let old = parse("").unwrap();
    let new = parse("listen = \"127.0.0.1:1\"\nhosts = [\"a.example\"]").unwrap();
    assert_eq!(old.needs_restart(&new), ["listen"]);
    let live = parse("[alerts]\nstalled = 9\n[tools.x]\nrisk = \"low\"").unwrap();
    assert!(old.needs_restart(&live).is_empty() && old.live.tools != live.live.tools);
}
