//! The connection to PostgreSQL is cut around a COMMIT: before it is forwarded, or between it and its
//! response.

use super::{
    Plan, Scene, Tally, folder,
    proxy::{Proxy, When},
};
use crate::{
    checker::Losses,
    daemon::Home,
    history::{Outcome, Record},
};

pub async fn run(plan: &Plan) -> Result<Tally, String> {
    let cluster = tenure_testkit::shared();
    let database = cluster.create_database();
    let mut proxy = Proxy::start(cluster.port()).await.map_err(|error| error.to_string())?;
    let url = database.replace(&format!(":{}/", cluster.port()), &format!(":{}/", proxy.port));
    let folder = folder()?;
    let home = Home::postgres(folder.path(), &url)?;
    let mut scene = Scene::at("commit", folder, home, plan)?;
    let _daemon = scene.start().await?;
    for _ in 0..plan.rounds {
        scene.writes(plan.writes / 2).await?;
        let when = if scene.dice.one_in(2) { When::Before } else { When::After };
        let cut = proxy.cut(when).await?;
        scene.tally.faults += 1;
        scene.serves_again(cut).await?;
    }
    let unknown =
        |record: &Record| matches!(&record.outcome, Outcome::Unknown(why) if why.contains("outcome_unknown"));
    if plan.rounds > 2 && !scene.load.history.records().iter().any(unknown) {
        scene.tally.problems.push("no client got an unknown outcome".to_owned());
    }
    scene.end(Losses::Forbidden).await
}
