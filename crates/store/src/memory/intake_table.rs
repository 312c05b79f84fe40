//! No other program inserts into a ledger in memory.

use std::{
    future::{Future, pending, ready},
    pin::Pin,
};

use tenure_core::Millis;

use super::Memory;
use crate::{
    intake_table::{IntakeRow, IntakeRows, IntakeSource, IntakeTable},
    store::StoreFuture,
};

impl IntakeRows for Memory {
    fn intake_rows<'a>(
        &'a self,
        _: &'a [String],
        _: Option<&'a IntakeSource>,
        _: usize,
    ) -> StoreFuture<'a, Vec<IntakeRow>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn settle_intake_rows<'a>(
        &'a self,
        _: &'a [i64],
        _: &'a [(i64, String)],
        _: Millis,
    ) -> StoreFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    fn intake_table(&self) -> StoreFuture<'_, IntakeTable> {
        Box::pin(ready(Ok(IntakeTable::default())))
    }

    fn intake_hint(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(pending())
    }
}
