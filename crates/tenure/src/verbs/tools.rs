//! `tools`: the declared tools and the evaluation of a trial command. Nothing is recorded, and no call is
//! made.

use tenure_api::client::ServerClock;
use tenure_server::{
    Config, Overlay,
    config::Live,
    tools::trial::{self, Declared, Judged, Trial},
};

use crate::{
    args::ToolsCheck,
    exit::{Exit, Failure},
    render::{Out, Table, safe, say},
};

pub fn check(out: &Out, args: &ToolsCheck) -> Result<Exit, Failure> {
    let live = Config::load(Some(&args.file), Overlay::default())?.live;
    match &args.tool {
        None => list(out, args, &live),
        Some(tool) => one(out, args, &live, tool),
    }
}

fn list(out: &Out, args: &ToolsCheck, live: &Live) -> Result<Exit, Failure> {
    let tools = trial::declared(live);
    out.list(&tools, |tools, _| table(tools))?;
    let missing =
        tools.iter().flat_map(|tool| tool.missing.iter().map(|what| format!("{}: {what}", tool.tool)));
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        let why = format!("{}. Install it, or correct {}", missing.join("; "), args.file.display());
        return Err(Failure::new(Exit::Refused, why));
    }
    let policies = match live.policy.len() {
        0 => "no policies: low risk is allowed, high risk needs an approval".to_owned(),
        1 => "1 policy".to_owned(),
        n => format!("{n} policies"),
    };
    say(&format!("{} is valid: {policies} (version {}).", args.file.display(), live.policy.version()));
    Ok(Exit::Ok)
}

fn table(tools: &[Declared]) -> Table {
    let mut table = Table::new(
        &["TOOL", "RISK", "IDEMPOTENCY", "EXECUTOR", "LOOKUP", "SCHEMA", "REDACTED"],
        "No tool is declared: every tool is high risk, not idempotent, and executed by its worker.",
    );
    for tool in tools {
        let executor = match &tool.calls {
            Some(calls) => format!("{} {calls}", word(&tool.executor)),
            None => word(&tool.executor),
        };
        table.row(vec![
            tool.tool.as_str().into(),
            word(&tool.risk).into(),
            word(&tool.idempotency).into(),
            executor.into(),
            tool.lookup.as_deref().unwrap_or("-").into(),
            if tool.schema { "yes" } else { "-" }.into(),
            if tool.redacted.is_empty() { "-".to_owned() } else { tool.redacted.join(" ") }.into(),
        ]);
    }
    table
}

/// Its text in the configuration.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn one(out: &Out, args: &ToolsCheck, live: &Live, tool: &str) -> Result<Exit, Failure> {
    let trial = Trial {
        tool,
        target: &args.target,
        arguments: &args.arguments,
        actor: &args.actor,
        tenant: &args.tenant,
        kind: &args.kind,
        source: &args.source,
        now: ServerClock::default().now().0,
    };
    let judged =
        trial::try_out(live, &trial).map_err(|refusal| Failure::new(Exit::Refused, refusal.detail))?;
    out.one(&judged, |judged, _| text(judged))?;
    Ok(if judged.is_allowed() {
        Exit::Ok
    } else if judged.is_denied() {
        Exit::Refused
    } else {
        Exit::Unsuccessful
    })
}

fn text(judged: &Judged) -> String {
    let mut lines = vec![format!("{} {}", safe(&judged.tool), word(&judged.decision.effect))];
    lines.extend(judged.decision.reasons.iter().map(|reason| format!("  {}", safe(reason))));
    if !judged.declared {
        lines
            .push("  the tool is not declared: high risk, not idempotent, executed by its worker".to_owned());
    }
    lines.push(format!("arguments {}", safe(&judged.arguments.to_string())));
    lines.extend(judged.input_hash.iter().map(|hash| format!("hash      {}", word(hash))));
    lines.push(format!("policy    {}\n", judged.decision.policy_version));
    lines.join("\n")
}
