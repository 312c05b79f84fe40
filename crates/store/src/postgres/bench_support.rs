//! For the benchmark only: the statements of one transition, and how a lane's connection is set up. What
//! it calls raw must be exactly these.

pub use super::{
    command::{INSERT as INSERT_COMMAND, STATUS as SAVE_COMMAND_STATUS, UPDATE as UPDATE_COMMAND},
    connection::SETTINGS,
    save::{INSERT_EVENT, UPDATE_WORK},
};
use super::{connect::Connector, migrate};
use crate::{Error, Options};

/// Makes a ledger's tables in an empty database.
pub async fn create_schema(url: &str) -> Result<(), Error> {
    let options = Options { allow_weak_settings: true, ..Options::default() };
    let mut session = Connector::new(url, &options)?.session().await?;
    migrate::migrate(&mut session.client).await.map(|_key| ())
}
