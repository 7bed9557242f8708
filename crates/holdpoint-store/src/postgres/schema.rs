//! The schema, and bringing an older one up to date.

use super::error::of_commit;
use super::rows::{self, Done};
use super::{PostgresStore, Work};
use crate::Error;

/// The migrations, in order; the schema's version is how many of them it has had.
pub(super) const MIGRATIONS: [&str; 6] = [
    include_str!("migrations/0001_start.sql"),
    include_str!("migrations/0002_effect.sql"),
    include_str!("migrations/0003_tidy.sql"),
    include_str!("migrations/0004_late_result.sql"),
    include_str!("migrations/0005_terms.sql"),
    include_str!("migrations/0006_quarantine.sql"),
];

impl PostgresStore {
    /// Instances that start together do this one after the other: the row they lock is there from the first on.
    pub(super) async fn migrate(&self) -> Done<()> {
        let mut client = self.connection(Work::New).await?;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS holdpoint_schema (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL); \
                 INSERT INTO holdpoint_schema VALUES (true, 0) ON CONFLICT DO NOTHING",
            )
            .await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_one("SELECT version FROM holdpoint_schema FOR UPDATE", &[]).await?;
        let found = rows::small(row.try_get(0)?);
        let known = MIGRATIONS.len() as u32;
        if found > known {
            return Err(Error::Newer { what: "the database".into(), found, known }.into());
        }
        for sql in MIGRATIONS.iter().skip(found as usize) {
            transaction.batch_execute(sql).await?;
        }
        transaction.execute("UPDATE holdpoint_schema SET version = $1", &[&(known as i32)]).await?;
        transaction.commit().await.map_err(of_commit)
    }
}
