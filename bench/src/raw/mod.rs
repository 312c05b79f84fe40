//! Raw.
use crate::{Result, plan::Commit, site::Place, stats::Rate};
use std::time::Duration;
pub struct Raw;
impl Raw {
    pub async fn open(_place: &Place, _rows: usize, _connections: usize) -> Result<Raw> {
        Ok(Raw)
    }
    pub async fn run(&mut self, _commit: Commit, slice: Duration) -> Result<Rate> {
        Ok(Rate { count: 1, elapsed: slice })
    }
}
