//! The cluster starts, serves, comes back after a crash, and leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use tenure_testkit::Cluster;

#[test]
fn serves_with_the_settings_asked_for() {
    let cluster = Cluster::start_with(&["shared_buffers=48MB", "cluster_name=it's"]);
    assert_eq!(cluster.psql("postgres", "select 1"), "1");
    for (setting, value) in [
        ("shared_buffers", "48MB"),
        ("cluster_name", "it's"),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("max_connections", "200"),
        ("listen_addresses", "127.0.0.1"),
        ("server_encoding", "UTF8"),
        ("timezone", "UTC"),
    ] {
        assert_eq!(cluster.psql("postgres", &format!("show {setting}")), value, "{setting}");
    }
}

#[test]
fn databases_are_distinct_also_through_an_outer_server() {
    let cluster = Cluster::start();
    let outer = Cluster::at(&format!("{}/", cluster.base()));
    let urls = [cluster.create_database(), cluster.create_database(), outer.create_database()];
    for url in &urls {
        let name = url.strip_prefix(cluster.base()).expect("on this server").trim_start_matches('/');
        cluster.psql(name, "create table mine ()");
    }
}

#[test]
fn comes_back_after_a_crash_with_what_was_committed() {
    let cluster = Cluster::start();
    cluster.psql("postgres", "create table kept as select 7 as n");
    let before = cluster.pid();
    cluster.restart();
    assert_ne!(cluster.pid(), before);
    assert_eq!(cluster.psql("postgres", "select n from kept"), "7");

    cluster.stop();
    assert!(TcpStream::connect(address(cluster.base())).is_err());
    cluster.restart();
    assert_eq!(cluster.psql("postgres", "select n from kept"), "7");

    kill("KILL", cluster.pid());
    cluster.restart();
    assert_eq!(cluster.psql("postgres", "select n from kept"), "7");
}

#[test]
fn a_standby_has_what_was_committed_and_is_promoted() {
    let cluster = Cluster::start();
    cluster.psql("postgres", "create table kept as select 7 as n");
    let standby = cluster.standby();
    assert_eq!(standby.psql("postgres", "select n, pg_is_in_recovery() from kept"), "7|t");
    cluster.stop();
    standby.promote();
    assert_eq!(standby.psql("postgres", "insert into kept values (8) returning pg_is_in_recovery()"), "f");
}

#[test]
fn drop_leaves_no_process_and_no_folder() {
    let cluster = Cluster::start();
    let (pid, folder) = (cluster.pid(), cluster.folder());
    assert!(is_alive(pid) && folder.exists());
    drop(cluster);
    assert!(!is_alive(pid) && !folder.exists());
}

#[test]
fn a_killed_holder_leaves_no_process_and_no_folder() {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_tenure-testkit"))
        .args(["pg", "--", "sh", "-c", "echo $TENURE_TEST_POSTGRES; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the wrapper starts");
    let mut base = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut base).unwrap();
    let data = Cluster::at(base.trim()).psql("postgres", "show data_directory");
    let lock = std::fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
    let pid: u32 = lock.lines().next().unwrap().parse().unwrap();
    assert!(is_alive(pid));

    holder.kill().unwrap(); // SIGKILL: none of the holder's own code runs any more
    holder.wait().unwrap();
    wait_until_gone(Path::new(&data).parent().unwrap());
    assert!(!is_alive(pid));
}

#[test]
fn the_wrapper_passes_on_how_its_command_ended() {
    let run = |args: &[&str]| -> ExitStatus {
        let mut wrapper = Command::new(env!("CARGO_BIN_EXE_tenure-testkit"));
        wrapper.args(args).stderr(Stdio::null()).status().expect("the wrapper runs")
    };
    assert_eq!(run(&["pg", "--", "sh", "-c", "exit 7"]).code(), Some(7));
    assert_eq!(run(&["pg", "--", "sh", "-c", "kill -TERM $$"]).code(), Some(128 + 15));
    assert_eq!(run(&["pg", "--", "/no/such/program"]).code(), Some(127));
    assert_eq!(run(&["pg"]).code(), Some(2));
}

fn address(base: &str) -> &str {
    base.rsplit_once('@').expect("the URL names a user").1
}

fn kill(signal: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid.to_string()]).status();
    assert!(sent.expect("sh runs").success());
}

/// A zombie, which nobody has waited for yet, is dead.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The keeper is no child of this process, so there is nothing to wait on but the file system.
fn wait_until_gone(folder: &Path) {
    let script = "while [ -e \"$0\" ]; do sleep 0.02; done";
    let gone = Command::new("timeout").args(["30", "sh", "-c", script]).arg(folder).status();
    assert!(gone.expect("timeout runs").success(), "{} is still there", folder.display());
}
