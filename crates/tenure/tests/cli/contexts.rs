//! `login` and `logout`: a token is stored for its daemon, and sent to no other.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::bed::{Bed, Said, tenure};

/// A person's home, in a folder without a ledger.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = tenure(self.folder.path());
        command.env("HOME", self.folder.path()).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        Said::of(self.command(args).output().unwrap())
    }

    fn login(&self, args: &[&str], token: &str) -> Said {
        let mut command = self.command(&[&["login"], args].concat());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{token}").unwrap();
        Said::of(child.wait_with_output().unwrap())
    }
}

#[test]
fn a_login_is_used_until_the_logout() {
    let (bed, home) = (Bed::sqlite(), Home::new());
    let url = bed.daemon.as_ref().unwrap().url.clone();
    home.login(&[&url], "nobody-has-this-one").ends(4);
    let file = home.folder.path().join(".config/tenure/contexts.json");
    assert!(!file.exists(), "a refused token is not stored");
    let said = home.login(&[&url, "--name", "here"], &bed.token()).ends(0);
    assert!(said.err.contains("context here") && !said.err.contains(&bed.token()), "{}", said.err);
    for (path, mode) in [(file.as_path(), 0o600), (file.parent().unwrap(), 0o700)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    home.run(&["list"]).ends(0);
    home.run(&["--context", "here", "list"]).ends(0);
    home.run(&["--context", "there", "list"]).ends(3);
    home.run(&["logout", "there"]).ends(3);
    home.run(&["logout"]).ends(0);
    assert!(!fs::read_to_string(&file).unwrap().contains(&bed.token()));
    home.run(&["--url", &url, "list"]).ends(4);
}

/// The other daemon is a listener that must never be connected to.
#[test]
fn no_token_is_sent_to_another_daemon() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let list = |name: &str, value: &str| {
        Said::of(home.command(&["--url", &url, "list"]).env(name, value).output().unwrap())
    };
    let refused = list("TENURE_TOKEN", "of-somebody-else").ends(2);
    for part in ["TENURE_TOKEN belongs to http://127.0.0.1:7171", "--token", &format!("tenure login {url}")] {
        assert!(refused.err.contains(part), "{part} in {}", refused.err);
    }
    assert!(listener.accept().is_err(), "nothing was sent");
}
