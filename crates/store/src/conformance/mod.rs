//! What every store must do, as one suite: the same cases run over memory, SQLite and PostgreSQL.
//!
//! A test file opens its store in an `async fn(Options) -> Ledger` and hands it to
//! [`conformance_tests!`](crate::conformance_tests), which makes one test of every case. Each case gets a
//! fresh ledger in a [`Bed`] and ends with a verification of everything that is stored.

mod bed;
pub mod claim;
pub mod ingest;
pub mod life;

pub use bed::*;

/// Makes one test a case; `$open` is an `async fn(Options) -> Ledger` that opens a fresh store.
#[macro_export]
macro_rules! conformance_tests {
    ($open:ident) => {
        $crate::conformance_tests! { $open:
            life {
                whole_life,
                steps_are_reused_and_restarted,
                progress_is_idempotent,
                release_hands_it_back,
                warnings_need_words,
            }
            ingest {
                the_same_again_is_the_same_work,
                other_content_is_a_mismatch,
                fifty_deliveries_make_one_work,
                a_tenant_is_a_world_of_its_own,
                malformed_works_are_refused,
                payloads_are_bounded,
                externally_owned_work_ends_by_its_token,
                detached_work_is_born_terminal,
                ingest_claims_in_the_same_act,
            }
            claim {
                priority_then_age,
                filters_restrict,
                max_is_respected,
                a_repeated_request_gets_its_leases_again,
                ids_are_all_or_nothing,
                a_parked_claim_is_served_by_an_ingest,
                parked_claims_are_served_in_turn,
                a_parked_claim_times_out_empty,
                an_abandoned_parked_claim_takes_nothing,
                a_parked_claim_minds_its_filter,
                fences_only_grow,
            }
        }
    };
    ($open:ident: $($theme:ident { $($case:ident,)* })*) => {
        $(mod $theme {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let mut bed = $crate::conformance::Bed::open(super::$open).await;
                    $crate::conformance::$theme::$case(&mut bed).await;
                    bed.verify().await;
                }
            )*
        })*
    };
}
