//! Recovery foretold: the records around a held work item, and the core's forecast over them.

use tenure_core::{
    Command, CommandState, Step, Work,
    model::OnParentClose,
    work::forecast::{Beside, Forecast, forecast},
};

use crate::{CommandFilter, Error, Ledger};

/// A held work item with what its holder's loss puts at risk.
#[derive(Clone, Debug)]
pub struct AtRisk {
    /// What follows if the holder stays silent.
    pub forecast: Forecast,
    /// Its open commands.
    pub commands: Vec<Command>,
}

/// The records around a held work item.
pub(super) struct Around {
    steps: Vec<Step>,
    /// Its open commands.
    pub commands: Vec<Command>,
    parent: Option<Work>,
}

impl Around {
    pub fn beside(&self) -> Beside<'_> {
        Beside { steps: &self.steps, commands: &self.commands, parent: self.parent.as_ref() }
    }
}

impl Ledger {
    /// None for a work item that nobody holds.
    pub async fn at_risk(&self, work: &Work) -> Result<Option<AtRisk>, Error> {
        if !work.state.holds_session() {
            return Ok(None);
        }
        let around = self.around(work).await?;
        let forecast = forecast(work, &around.beside(), self.now().await?);
        Ok(forecast.map(|forecast| AtRisk { forecast, commands: around.commands }))
    }

    /// The records that recovery reads beside the work item.
    pub(super) async fn around(&self, work: &Work) -> Result<Around, Error> {
        let commands = self.open_commands(work).await?;
        let steps = if work.body.steps > 0 { self.steps(work.id).await? } else { Vec::new() };
        let parent = match work.spec.parent {
            Some(parent) if work.spec.on_parent_close == OnParentClose::Cancel => {
                self.works(&[parent]).await?.pop()
            }
            Some(_) | None => None,
        };
        Ok(Around { steps, commands, parent })
    }

    /// The newest command of a work item that is proven to have taken effect.
    pub async fn last_receipt(&self, work: &Work) -> Result<Option<Command>, Error> {
        if work.body.commands.total == 0 {
            return Ok(None);
        }
        let states = vec![CommandState::Succeeded];
        let filter = CommandFilter { work: Some(work.id), states, ..CommandFilter::default() };
        Ok(self.store().list_commands(&filter, None, 1).await?.rows.pop())
    }
}
