//! Attacks on the daemon, one topic a file: each test is named after what it prevents.

mod approvals;
mod backup_paths;
mod batch;
#[allow(dead_code, unused_imports, unused_macros)] // shared with the tests of HTTP: no topic uses all of it
#[path = "../http/bed.rs"]
mod bed;
mod bombs;
mod framing;
mod identity;
mod labels;
mod parameters;
mod poison_values;
mod quotas;
mod readable;
mod redaction;
mod revocation;
mod scopes;
mod slow_names;
mod starvation;
mod tenants;
