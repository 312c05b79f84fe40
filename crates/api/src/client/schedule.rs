//! Schedules.

use super::{
    Client, Error,
    call::{Call, segment},
};
use crate::wire::{
    DeleteSchedule, Page, PauseSchedule, RunSchedule, Schedule, ScheduleGet, ScheduleQuery, SetSchedule,
};

impl Client {
    /// Schedules, by name.
    pub async fn schedules(&self, query: &ScheduleQuery) -> Result<Page<Schedule>, Error> {
        self.call(Call::get("/v1/schedules").query(query)).await
    }

    /// A schedule with its changes.
    pub async fn schedule(&self, name: &str, query: &ScheduleGet) -> Result<Schedule, Error> {
        self.call(Call::get(path(name, "")).query(query)).await
    }

    /// Creates or replaces a schedule. Idempotent.
    pub async fn set_schedule(&self, name: &str, set: &SetSchedule) -> Result<Schedule, Error> {
        self.call(Call::put(path(name, ""), set)).await
    }

    /// Pauses a schedule.
    pub async fn pause_schedule(&self, name: &str, pause: &PauseSchedule) -> Result<Schedule, Error> {
        self.call(Call::post(path(name, "/pause"), pause)).await
    }

    /// Resumes a schedule.
    pub async fn resume_schedule(&self, name: &str, resume: &PauseSchedule) -> Result<Schedule, Error> {
        self.call(Call::post(path(name, "/resume"), resume)).await
    }

    /// Runs a schedule now, outside its due times.
    pub async fn run_schedule(&self, name: &str, run: &RunSchedule) -> Result<Schedule, Error> {
        self.call(Call::post(path(name, "/run-now"), run)).await
    }

    /// Deletes a schedule and returns it as it was.
    pub async fn delete_schedule(&self, name: &str, delete: &DeleteSchedule) -> Result<Schedule, Error> {
        self.call(Call::delete(path(name, "")).query(delete).once()).await
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/schedules/{}{rest}", segment(name))
}
