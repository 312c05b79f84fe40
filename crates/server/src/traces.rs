//! Spans of requests, with the ids of the work item and step they concern; and, if compiled in, their export
//! over OTLP. State is never derived from them.

use axum::http::{HeaderMap, Method};
use tracing::{Span, field::Empty};

/// The span of one request. `path` is as sent, `route` as declared.
pub(crate) fn request(method: &Method, route: &str, path: &str, headers: &HeaderMap) -> Span {
    let span = tracing::debug_span!(
        "request",
        otel.kind = "server",
        otel.name = route,
        http.request.method = method.as_str(),
        http.route = route,
        http.response.status_code = Empty,
        tenure.work = Empty,
        tenure.step = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if route.starts_with("/v1/work/")
        && let Some(id) = segment(route, path, "{id}")
    {
        span.record("tenure.work", id);
    }
    if let Some(step) = segment(route, path, "{step}") {
        span.record("tenure.step", step);
    }
    #[cfg(feature = "otlp")]
    otlp::continue_trace(&span, headers);
    #[cfg(not(feature = "otlp"))]
    let _ = headers;
    span
}

/// Records the work item of the current request.
pub(crate) fn about(work: impl std::fmt::Display) {
    Span::current().record("tenure.work", tracing::field::display(work));
}

fn segment<'a>(route: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let at = route.split('/').position(|part| part == name)?;
    path.split('/').nth(at)
}

#[cfg(feature = "otlp")]
pub mod otlp {
    //! Exports spans to a collector.

    use axum::http::HeaderMap;
    use opentelemetry::{
        propagation::{Extractor, TextMapPropagator},
        trace::TracerProvider,
    };
    use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
    use opentelemetry_sdk::{
        Resource, propagation::TraceContextPropagator, trace::SdkTracer, trace::SdkTracerProvider,
    };
    use tracing::{Span, Subscriber};
    use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
    use tracing_subscriber::registry::LookupSpan;

    /// A running exporter. Pending spans are sent with [`Traces::flush`].
    pub struct Traces(SdkTracerProvider);

    impl Traces {
        /// `endpoint`: a collector's HTTP address, like `http://127.0.0.1:4318`.
        pub fn to(endpoint: &str) -> Result<Self, ExporterBuildError> {
            let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
            let exporter = SpanExporter::builder().with_http().with_endpoint(url).build()?;
            let resource = Resource::builder().with_service_name("tenure").build();
            let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
            Ok(Self(provider.build()))
        }

        /// The layer for the process's subscriber.
        pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
        where
            S: Subscriber + for<'span> LookupSpan<'span>,
        {
            tracing_opentelemetry::layer().with_tracer(self.0.tracer("tenure"))
        }

        /// Sends the pending spans. Blocks while it does.
        pub fn flush(self) {
            if let Err(error) = self.0.shutdown() {
                tracing::warn!(%error, "the last traces were not sent");
            }
        }
    }

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|name| name.as_str()).collect()
        }
    }

    /// Continues the caller's trace.
    pub(super) fn continue_trace(span: &Span, headers: &HeaderMap) {
        if headers.contains_key("traceparent") {
            let context = TraceContextPropagator::new().extract(&Headers(headers));
            // Without a collector the parent is not needed.
            let _ = span.set_parent(context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn ids_are_found_where_the_route_has_them() {
        let route = "/v1/work/{id}/steps/{step}";
        assert_eq!(segment(route, "/v1/work/w_1/steps/fetch", "{id}"), Some("w_1"));
        assert_eq!(segment(route, "/v1/work/w_1/steps/fetch", "{step}"), Some("fetch"));
        assert_eq!(segment("/v1/work/{id}", "/v1/work/w_1", "{step}"), None);
    }
}
