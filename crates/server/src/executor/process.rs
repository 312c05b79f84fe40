//! Runs a program once: input in, bounded output out, and a kill of its whole process group at the timeout.

use std::{
    io,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// Bytes kept of each output. The rest is read and dropped, so that the program does not block.
const OUTPUT_BYTES: usize = 256 * 1024;
const COMPLAINT_BYTES: usize = 4 * 1024;

/// How long the outputs are still read after the program has exited.
const LEFT_OPEN: Duration = Duration::from_secs(1);

/// A program and its environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// Variables of the daemon's environment that it gets, besides `PATH`.
    pub env: Vec<String>,
    pub timeout: Duration,
}

/// How a program ended.
#[derive(Debug)]
pub enum Ended {
    /// It was never started.
    NotStarted(String),
    Exited {
        code: i32,
        output: Output,
    },
    /// It was killed by another's signal, or its status is unknown.
    Killed {
        signal: Option<i32>,
        output: Output,
    },
    /// It timed out, and its process group was killed.
    TimedOut(Output),
}

/// The beginning of its outputs.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether stdout was longer than the part kept.
    pub cut: bool,
}

impl Output {
    /// An excerpt for people.
    pub fn seen(&self) -> String {
        let from = if self.stderr.is_empty() { &self.stdout } else { &self.stderr };
        let text = String::from_utf8_lossy(from);
        match text.trim() {
            "" => String::new(),
            text => format!(": {}", super::excerpt(text, 300)),
        }
    }
}

/// Kills a process group when it is dropped, also when the future that watches it is.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails when the whole group has exited already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Program {
    /// Why it could not be started, as far as that is visible without starting it.
    pub fn fault(&self) -> Option<String> {
        let program = self.command.first()?;
        let runs = |path: &Path| {
            path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        let found = if program.contains('/') {
            runs(Path::new(program))
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| runs(&folder.join(program)))
        };
        (!found).then(|| format!("there is no executable program `{program}`"))
    }

    pub async fn run(&self, input: &[u8]) -> Ended {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ended::NotStarted("the program is missing".to_owned());
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let seen = self.env.iter().map(String::as_str).chain(["PATH"]);
        command.envs(seen.filter_map(|name| Some((name, std::env::var_os(name)?))));
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ended::NotStarted(format!("`{program}` cannot be started: {error}")),
        };
        let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut output = Output::default();
        let Output { stdout: out, stderr: complaints, cut } = &mut output;
        let streams = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A program that does not read its input may still have an effect.
                    let _ = stdin.write_all(input).await;
                }
            };
            let (_, longer, _) = tokio::join!(
                write,
                keep(stdout, out, OUTPUT_BYTES),
                keep(stderr, complaints, COMPLAINT_BYTES)
            );
            *cut = longer;
        };
        let ended = {
            tokio::pin!(streams);
            let ended = tokio::time::timeout(self.timeout, async {
                tokio::select! {
                    biased;
                    status = child.wait() => (status, true),
                    () = &mut streams => (child.wait().await, false),
                }
            })
            .await;
            // Kills the processes it left behind, which closes the outputs they hold. A process outside of
            // the group keeps them open, but the program's own output has been read already, and it has
            // exited in time.
            drop(group);
            if let Ok((_, true)) = ended {
                let _left_open = tokio::time::timeout(LEFT_OPEN, streams).await;
            }
            ended
        };
        match ended {
            Err(_) => Ended::TimedOut(output),
            Ok((status, _)) => Ended::of(program, status, output),
        }
    }
}

impl Ended {
    fn of(program: &str, status: io::Result<ExitStatus>, output: Output) -> Self {
        let signal = match status {
            // It was started, so it may have had any effect.
            Err(error) => {
                tracing::warn!(%program, %error, "the exit status of a program cannot be read");
                None
            }
            Ok(status) => match status.code() {
                Some(code) => return Ended::Exited { code, output },
                None => status.signal(),
            },
        };
        Ended::Killed { signal, output }
    }
}

/// Reads to the end, keeps the beginning, and returns whether there was more.
async fn keep(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, most: usize) -> bool {
    let Some(mut from) = from else { return false };
    let mut chunk = vec![0; 8 * 1024];
    let mut more = false;
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let fits = read.min(most - kept.len());
        kept.extend_from_slice(&chunk[..fits]);
        more |= fits < read;
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }

    fn out(ended: Ended) -> String {
        match ended {
            Ended::Exited { code: 0, output } => String::from_utf8(output.stdout).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_program_gets_its_input_and_only_the_environment_it_may_see() {
        assert_eq!(out(shell("cat").run(b"{}").await), "{}");
        let seen = out(shell("env").run(b"").await);
        assert!(seen.contains("PATH=") && !seen.contains("HOME="), "{seen}");
        let allowed = Program { env: vec!["HOME".into()], ..shell("env") };
        assert_eq!(out(allowed.run(b"").await).contains("HOME="), std::env::var_os("HOME").is_some());
    }

    #[tokio::test]
    async fn output_is_bounded_and_does_not_block_the_program() {
        match shell("head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2").run(b"").await {
            Ended::Exited { code: 0, output } => {
                assert_eq!((output.stdout.len(), output.stderr.len()), (OUTPUT_BYTES, COMPLAINT_BYTES));
                assert!(output.cut);
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn unread_input_is_not_a_failure() {
        assert_eq!(out(shell("exec <&-; echo done").run(&vec![b' '; 1 << 20]).await), "done\n");
    }

    #[tokio::test]
    async fn a_missing_program_never_ran() {
        let missing = Program { command: vec!["/no/such/program".into()], ..shell("") };
        assert!(matches!(missing.run(b"").await, Ended::NotStarted(why) if why.contains("/no/such/program")));
    }

    #[test]
    fn a_program_that_cannot_be_waited_for_may_have_done_anything() {
        let lost = Err(io::Error::from_raw_os_error(10)); // ECHILD: somebody else reaped it.
        let output = Output { stdout: b"{\"external_id\":\"x\"}".to_vec(), ..Output::default() };
        assert!(matches!(Ended::of("p", lost, output), Ended::Killed { signal: None, .. }));
    }

    #[tokio::test]
    async fn time_ends_the_whole_group() {
        // Both hold the pipe until they are killed; the pipe's end shows that they were.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut reader = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&pipe).unwrap();
        let script = format!("exec 3>{}; echo up >&3; tail -f /dev/null & tail -f /dev/null", pipe.display());
        let program = Program { timeout: Duration::from_millis(400), ..shell(&script) };
        assert!(matches!(program.run(b"").await, Ended::TimedOut(_)));
        let mut written = String::new();
        reader.read_to_string(&mut written).await.unwrap();
        assert_eq!(written, "up\n");
    }

    #[tokio::test]
    async fn processes_left_behind_are_killed() {
        assert_eq!(out(shell("tail -f /dev/null & echo started").run(b"").await), "started\n");
    }

    #[tokio::test]
    async fn a_child_that_keeps_its_output_open_does_not_hide_how_it_ended() {
        // Outside of its process group, so that it is not killed; it exits by itself.
        let script = "setsid sleep 20 & echo started";
        assert_eq!(out(shell(script).run(b"").await), "started\n");
    }

    /// Its outputs stay open for longer than its timeout: it still exited in time.
    #[tokio::test]
    async fn a_program_that_ended_in_time_is_not_timed_out_by_its_outputs() {
        let short =
            Program { timeout: Duration::from_millis(500), ..shell("setsid sleep 20 & echo started") };
        assert!(LEFT_OPEN > short.timeout);
        assert_eq!(out(short.run(b"").await), "started\n");
    }
}
