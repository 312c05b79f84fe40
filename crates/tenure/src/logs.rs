//! The daemon's logs: lines on stderr, and spans to a collector if one is configured.

use std::io::IsTerminal;

#[cfg(feature = "otlp")]
use tracing_subscriber::filter;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::exit::{Exit, Failure};

/// The exporter to flush before the process ends.
pub struct Logs {
    #[cfg(feature = "otlp")]
    traces: Option<tenure_server::Traces>,
}

impl Logs {
    pub fn start(otlp: Option<&str>) -> Result<Self, Failure> {
        let filter = EnvFilter::try_from_env("TENURE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
        let lines = if std::env::var("TENURE_LOG_FORMAT").is_ok_and(|format| format == "json") {
            lines.json().with_filter(filter).boxed()
        } else {
            lines.with_filter(filter).boxed()
        };
        let subscriber = tracing_subscriber::registry().with(lines);
        #[cfg(feature = "otlp")]
        {
            let unusable =
                |error| Failure::new(Exit::Error, format!("otlp.endpoint cannot be used: {error}"));
            let traces = otlp.map(tenure_server::Traces::to).transpose().map_err(unusable)?;
            // Only the daemon's own spans: an exporter that traces itself would never stop.
            let own = filter::Targets::new().with_target("tenure_server", tracing::Level::DEBUG);
            let layer = traces.as_ref().map(|traces| traces.layer().with_filter(own));
            // No other subscriber is set in this process.
            let _ = subscriber.with(layer).try_init();
            Ok(Self { traces })
        }
        #[cfg(not(feature = "otlp"))]
        {
            if otlp.is_some() {
                let detail =
                    "otlp.endpoint is set, but this build cannot send traces. Build with the feature `otlp`.";
                return Err(Failure::new(Exit::Error, detail.to_owned()));
            }
            let _ = subscriber.try_init();
            Ok(Self {})
        }
    }

    /// Sends the pending spans.
    pub async fn flush(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            // It blocks, and a failure cannot be handled any more.
            let _ = tokio::task::spawn_blocking(move || traces.flush()).await;
        }
    }
}
