//! Bare transitions on PostgreSQL: one statement for each commit, with its rows as arrays.

use std::time::Duration;

use tokio_postgres::{Client, Statement};

use crate::{Result, pg, plan::Commit, stats::Rate};

const TABLES: &str = "
    CREATE TABLE item (
        id bigint PRIMARY KEY, state int NOT NULL, attempt int NOT NULL,
        lease_until bigint, owner text, payload bytea
    );
    CREATE INDEX item_by_state ON item (state, id);
    CREATE TABLE history (
        number bigserial PRIMARY KEY, item bigint NOT NULL, kind int NOT NULL,
        at timestamptz NOT NULL DEFAULT now(), body bytea
    );";
const FILL: &str = "
    INSERT INTO item
    SELECT id, 0, 0, NULL, NULL, decode(repeat('00', 200), 'hex') FROM generate_series(0, $1::bigint - 1) id";
const TRANSITION: &str = "
    WITH given AS (SELECT unnest($1::bigint[]) AS id, unnest($2::int[]) AS state, unnest($3::bytea[]) AS body),
    moved AS (
        UPDATE item SET state = given.state, attempt = attempt + 1, owner = 'worker'
        FROM given WHERE item.id = given.id
        RETURNING item.id, given.state, given.body
    )
    INSERT INTO history (item, kind, body) SELECT id, state, body FROM moved";

pub struct Bare {
    lanes: Vec<Lane>,
}

/// A connection with its own rows to cycle through.
struct Lane {
    client: Client,
    transition: Statement,
    first: i64,
    rows: i64,
    done: i64,
}

impl Bare {
    pub async fn open(url: &str, rows: usize, connections: usize) -> Result<Bare> {
        let client = pg::connect(url).await?;
        client.batch_execute(TABLES).await?;
        client.execute(FILL, &[&(rows as i64)]).await?;
        client.batch_execute("VACUUM ANALYZE item").await?;
        let mut lanes = Vec::new();
        let share = (rows / connections) as i64;
        for lane in 0..connections as i64 {
            let client = pg::connect(url).await?;
            let transition = client.prepare(TRANSITION).await?;
            lanes.push(Lane { client, transition, first: lane * share, rows: share, done: 0 });
        }
        Ok(Bare { lanes })
    }

    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        pg::run(&mut self.lanes, commit, slice).await
    }
}

impl pg::Lane for Lane {
    async fn turn(&mut self, size: usize) -> Result<()> {
        let numbers = self.done..self.done + size as i64;
        let ids: Vec<i64> = numbers.clone().map(|number| self.first + number % self.rows).collect();
        let states: Vec<i32> = numbers.map(|number| (number / self.rows % 4 + 1) as i32).collect();
        let bodies = vec![&[1_u8; 100][..]; size];
        self.client.execute(&self.transition, &[&ids, &states, &bodies]).await?;
        self.done += size as i64;
        Ok(())
    }
}
