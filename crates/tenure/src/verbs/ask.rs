//! Asks a person before something changes: the consequence is shown, a reason is asked for unless it was
//! given, and then a confirmation. Without a terminal both must be given as options.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::{
    args::{Act, is_placeholder},
    exit::{Exit, Failure},
    render,
};

/// The reason, once the person has agreed. A dry run asks for nothing.
pub fn confirm(act: &Act, consequence: &str) -> Result<String, Failure> {
    if act.dry_run {
        return Ok(act.reason.clone().unwrap_or_else(|| "dry run".to_owned()));
    }
    let stdin = io::stdin();
    ask(act, consequence, stdin.is_terminal(), &mut stdin.lock(), &mut io::stderr())
}

/// A line that the person types at the terminal; None without a terminal, or if the line is empty.
pub fn typed(question: &str) -> Result<Option<String>, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Ok(None);
    }
    Ok(Some(line(question, &mut stdin.lock(), &mut io::stderr())?).filter(|text| !text.is_empty()))
}

/// A secret: typed at a terminal without an echo, or read from stdin.
pub fn secret(question: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        let quiet = Quiet::begin()?;
        text = line(question, &mut stdin.lock(), &mut io::stderr())?;
        drop(quiet);
        render::say("");
    } else {
        stdin.lock().read_line(&mut text)?;
    }
    match text.trim() {
        "" => Err(Failure::usage("Give the token: at the prompt, on stdin, or with --token.")),
        text => Ok(text.to_owned()),
    }
}

/// A terminal that does not echo what is typed, until this is dropped.
struct Quiet(rustix::termios::Termios);

impl Quiet {
    fn begin() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| Failure::new(Exit::Error, error.to_string());
        let before = rustix::termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(rustix::termios::LocalModes::ECHO);
        rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, &quiet)
            .map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, &self.0);
    }
}

fn ask(
    act: &Act,
    consequence: &str,
    terminal: bool,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<String, Failure> {
    let missing: Vec<&str> = [(act.reason.is_none(), "--reason"), (!act.yes, "--yes")]
        .into_iter()
        .filter_map(|(missing, option)| missing.then_some(option))
        .collect();
    if let (Some(reason), true) = (&act.reason, act.yes) {
        return Ok(reason.clone());
    }
    if !terminal {
        let missing = missing.join(" and ");
        return Err(Failure::usage(format!(
            "{consequence} There is no terminal to confirm this: give {missing}."
        )));
    }
    write!(to, "{} ", render::safe(consequence))?;
    let reason = match &act.reason {
        Some(reason) => reason.clone(),
        None => line("\nReason: ", from, to)?,
    };
    if reason.is_empty() || is_placeholder(&reason) {
        return Err(Failure::new(Exit::Refused, "nothing was done: a reason is required, and recorded"));
    }
    if act.yes || matches!(line("Continue? [y/N] ", from, to)?.as_str(), "y" | "Y" | "yes") {
        return Ok(reason);
    }
    Err(Failure::new(Exit::Refused, "nothing was done"))
}

fn line(question: &str, from: &mut impl BufRead, to: &mut impl Write) -> Result<String, Failure> {
    write!(to, "{question}")?;
    to.flush()?;
    let mut answer = String::new();
    from.read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(reason: Option<&str>, terminal: bool, typed: &str) -> (Result<String, Exit>, String) {
        let act = Act { reason: reason.map(str::to_owned), yes: false, dry_run: false };
        let mut shown = Vec::new();
        let answer = ask(&act, "w_1\x1b[2J is forgotten.", terminal, &mut typed.as_bytes(), &mut shown);
        (answer.map_err(|failure| failure.exit), String::from_utf8(shown).unwrap())
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for typed in ["y\n", "Y\n", " yes \n"] {
            let (answer, shown) = asked(Some("why"), true, typed);
            assert_eq!(answer, Ok("why".to_owned()), "{typed:?}");
            assert_eq!(shown, "w_1\\u{1b}[2J is forgotten. Continue? [y/N] ");
        }
        for typed in ["", "\n", "n\n", "yep\n", "no\ny\n"] {
            assert_eq!(asked(Some("why"), true, typed).0, Err(Exit::Refused), "{typed:?}");
        }
    }

    #[test]
    fn a_missing_reason_is_asked_for_first() {
        let (answer, shown) = asked(None, true, "it is right\ny\n");
        assert_eq!(answer, Ok("it is right".to_owned()));
        assert_eq!(shown, "w_1\\u{1b}[2J is forgotten. \nReason: Continue? [y/N] ");
        // The next lines of a pasted block are taken as a reason and as a no.
        for typed in
            ["\ny\n", "…\ny\n", "...\ny\n", "tenure reject w_1\n", "tenure reject w_1\ntenure show w_1\n"]
        {
            assert_eq!(asked(None, true, typed).0, Err(Exit::Refused), "{typed:?}");
        }
    }

    #[test]
    fn without_a_terminal_nobody_is_asked() {
        assert_eq!(asked(None, false, "why\ny\n"), (Err(Exit::Usage), String::new()));
        assert_eq!(asked(Some("why"), false, "y\n"), (Err(Exit::Usage), String::new()));
    }
}
