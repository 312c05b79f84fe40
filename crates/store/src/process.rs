//! Liveness evidence of local processes, from Linux's /proc. On other systems there is no evidence.

use std::fs;

use tenure_core::liveness::{Liveness, Seen, Sighting};

/// The evidence that this process sends with its claims. None if the system does not provide it.
pub fn here() -> Option<Liveness> {
    let (_, start_time) = state_and_start(std::process::id())?;
    Some(Liveness::LocalProcess {
        boot_id: boot_id()?,
        pid_namespace: pid_namespace()?,
        pid: std::process::id(),
        start_time,
    })
}

/// What this process can see of a holder. Evidence of another boot of the machine or another namespace proves
/// nothing.
pub(crate) fn look(liveness: &Liveness, fence: u64) -> Option<Sighting> {
    let Liveness::LocalProcess { boot_id: boot, pid_namespace: namespace, pid, start_time } = liveness else {
        return None;
    };
    if boot_id()? != *boot || pid_namespace()? != *namespace {
        return None;
    }
    let (seen, what) = match state_and_start(*pid) {
        Some((_, start)) if start != *start_time => (Seen::Gone, "another process has its pid"),
        Some(('Z' | 'X', _)) => (Seen::Gone, "it has exited"),
        Some(('T' | 't', _)) => (Seen::Stopped, "it is stopped"),
        Some(_) => (Seen::Running, "it runs"),
        // An unreadable entry does not prove an end. A missing one does, unless /proc hides other users'
        // processes.
        None if !fs::exists(format!("/proc/{pid}")).ok()?
            && shows_everybody(&fs::read_to_string("/proc/self/mounts").ok()?) =>
        {
            (Seen::Gone, "no such process")
        }
        None => return None,
    };
    let detail = format!("pid {pid} started at tick {start_time} of boot {boot}: {what}");
    Some(Sighting { fence, seen, detail })
}

/// Whether /proc, as mounted here, shows the processes of other users.
fn shows_everybody(mounts: &str) -> bool {
    let proc = mounts.lines().rev().find(|line| line.split(' ').nth(1) == Some("/proc"));
    let options = proc.and_then(|line| line.split(' ').nth(3));
    options.is_some_and(|options| options.split(',').all(|option| !option.starts_with("hidepid=")))
}

fn boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The process's state letter and start time. Parsed from the end, because the name before them may contain
/// anything.
fn state_and_start(pid: u32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_processes_are_hidden_absence_proves_nothing() {
        let plain = "sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n";
        let hidden = "proc /proc proc rw,nosuid,hidepid=invisible 0 0\n";
        let old = "proc /proc proc rw,gid=4,hidepid=2 0 0\n";
        assert!(shows_everybody(plain));
        assert!(!shows_everybody(hidden));
        assert!(!shows_everybody(old));
        assert!(!shows_everybody(&[plain, hidden].concat()), "the last one mounted is the one seen");
        assert!(!shows_everybody(""), "no known /proc");
    }

    #[test]
    fn this_process_runs_and_a_child_that_was_waited_for_is_gone() {
        let me = here().expect("Linux tells about processes");
        assert_eq!(look(&me, 7).unwrap().seen, Seen::Running);

        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let Liveness::LocalProcess { boot_id, pid_namespace, .. } = me else { panic!("a local process") };
        let (_, start_time) = state_and_start(child.id()).unwrap();
        let theirs =
            Liveness::LocalProcess { boot_id: boot_id.clone(), pid_namespace, pid: child.id(), start_time };
        assert_eq!(look(&theirs, 7).unwrap().seen, Seen::Running);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&theirs, 7).unwrap().seen, Seen::Gone);

        let elsewhere =
            Liveness::LocalProcess { boot_id, pid_namespace: pid_namespace + 1, pid: 1, start_time: 1 };
        assert_eq!(look(&elsewhere, 7), None, "another namespace proves nothing");
    }
}
