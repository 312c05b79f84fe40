//! Arguments of `demo`.

use std::time::Duration;

use clap::Args;

use super::period;

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure demo\n  tenure demo --for 1m --listen 127.0.0.1:7272\n\n\
The address and the access token are printed to stdout, the story to stderr. The ledger is a file in a temporary folder \
that is deleted afterwards.")]
pub struct Demo {
    /// The address to listen on; a free port by default
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", hide_default_value = true)]
    pub listen: String,
    /// End after this time; by default, at Ctrl-C
    #[arg(long = "for", value_parser = period, value_name = "PERIOD")]
    pub lasts: Option<Duration>,
    /// The seed: the same number plays the same story
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The length of a beat of the story: leases, backoffs and waits for people are counted in beats
    #[arg(long, value_parser = beat, value_name = "PERIOD", default_value = "1s")]
    pub beat: Duration,
    /// Keep the ledger afterwards
    #[arg(long)]
    pub keep: bool,
}

/// With shorter beats, leases would lapse because the machine is busy rather than because the story says so.
fn beat(text: &str) -> Result<Duration, String> {
    let beat = period(text)?;
    if beat < Duration::from_millis(20) || beat > Duration::from_secs(60) {
        return Err("a beat must be between 20ms and 60s".to_owned());
    }
    Ok(beat)
}
