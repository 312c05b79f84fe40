//! The conformance suite of the stores: the same cases run over memory, SQLite and PostgreSQL.
//!
//! A test file opens its store in an `async fn(Options) -> Ledger` and passes it to
//! [`conformance_tests!`](crate::conformance_tests), which creates a test for each case. A case gets a fresh
//! ledger in a [`Bed`] and ends with a verification of everything stored.

mod bed;
pub mod cancelled;
pub mod claim;
pub mod commands;
pub mod credentials;
pub mod crowd;
pub mod deadlines;
pub mod doubt;
pub mod dry_run;
pub mod dues;
pub mod erase;
pub mod family;
pub mod gauges;
pub mod identity;
pub mod ingest;
pub mod intake;
pub mod lease;
pub mod life;
pub mod operate;
pub mod past;
pub mod plans;
pub mod quota;
pub mod reads;
pub mod recovery;
pub mod redacted;
pub mod refusal;
pub mod retention;
pub mod schedules;
pub mod session;
pub mod stuck;
pub mod tenancy;
pub mod timers;
pub mod waits;
pub mod weights;

pub use bed::*;

/// Creates a test for each case; `$open` is an `async fn(Options) -> Ledger` that opens a fresh store.
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
                words_survive,
                an_auth_failure_may_wait,
                what_attempts_used_is_summed,
                it_says_since_when_it_stands_where_it_stands,
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
            intake {
                a_pause_lets_nothing_new_in_and_what_is_here_goes_on,
                a_pause_of_one_tenant_leaves_the_others_alone,
                a_pause_is_tried_without_a_trace,
                schedules_wait_while_intake_is_paused,
            }
            quota {
                no_door_passes_the_quota_of_open_works,
                what_is_there_is_answered_at_the_quota,
                a_schedule_cannot_pass_the_quota_by_itself,
                urgency_is_bounded_for_schedules_too,
                inputs_are_bounded_by_their_bytes,
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
                a_request_repeated_at_once_is_one_claim,
                the_order_holds_across_kinds_and_sources,
                tenants_take_turns_within_a_priority,
                a_thousand_at_once,
                an_incarnation_is_its_workers_own,
            }
            weights {
                a_work_keeps_so_many_bytes_and_gives_them_all,
                heavy_works_come_a_few_at_a_time,
                a_page_of_heavy_waits_ends_early,
                a_page_of_heavy_works_ends_early,
            }
            commands {
                intent_effect_evidence,
                the_same_intent_is_the_same_command,
                approvals_are_sealed_used_once_and_expire,
                a_worker_waits_for_the_approval,
                a_lapse_puts_it_in_doubt_and_a_lookup_ends_it,
                lookups_are_claimed_of_the_own_tenants,
                a_late_copy_speaks_of_its_own_dispatch_only,
                what_nobody_can_tell_ends_with_a_person,
                the_outbox_is_sent_once,
                ordered_sends_wait_for_one_another,
                what_waits_in_line_names_the_first_of_it,
                budgets_hold_under_a_crowd,
                one_answer_settles_what_several_works_set_aside,
                a_dispatch_is_given_once_under_a_crowd,
                replays_are_for_people_and_bounded,
                a_rerun_repeats_nothing_by_itself,
                one_risky_tool_needs_no_work,
                a_changed_policy_is_asked_again,
                commands_are_listed_within_their_tenants,
                works_with_open_commands_are_not_pruned,
                usage_is_kept_where_commands_are_in_doubt,
                money_is_counted_whatever_is_left_unsaid,
            }
            redacted {
                the_same_arguments_are_known_again_in_a_work_and_its_reruns,
                the_hash_differs_between_works_and_between_tenants,
                a_dry_run_does_not_tell_the_hash,
            }
            doubt {
                an_answer_kept_before_the_dispatch_is_no_receipt,
                an_answer_kept_after_an_unsent_call_is_no_receipt,
                a_second_callback_of_a_command_sent_twice_is_refused,
                an_answer_after_the_deadline_settles_its_command,
                a_wait_that_ends_in_doubt_queues_nothing,
                an_answer_after_a_revoke_fits_the_schema_or_is_no_receipt,
                a_workers_word_does_not_end_a_doubt,
                a_person_without_replay_ends_no_doubt_by_an_answer,
                a_native_command_in_doubt_stays_within_its_attempts,
                a_late_copy_of_a_dispatch_permits_nothing,
            }
            cancelled {
                its_unsent_commands_end_in_the_same_commit,
                a_work_that_ends_otherwise_after_a_cancel_sends_nothing,
                only_a_replay_after_the_end_outlives_a_cancel,
                a_command_in_doubt_is_not_sent_again_after_a_cancel,
                a_work_asked_to_cancel_dispatches_nothing_new,
            }
            session {
                a_queued_work_names_who_keeps_it_waiting,
                one_at_a_time_oldest_first,
                a_scheduled_retry_blocks_its_session,
                waiting_does_not_block,
                a_stalled_work_holds_its_session,
                a_lapsed_holder_cannot_take_back_a_taken_session,
                a_late_write_takes_the_session_back,
                many_sessions_under_many_workers,
            }
            lease {
                renewals_are_answered_one_by_one,
                nothing_goes_without_fence_and_token,
                the_verb_that_ended_an_attempt_can_be_repeated,
                a_late_write_counts_while_nobody_took_over,
                a_late_write_is_refused_after_a_takeover,
                only_a_tick_finds_a_lapse,
                clock_jumps_expire_no_living_holder,
                a_stall_expires_no_living_holder_of_a_short_lease,
            }
            plans {
                a_plan_touches_nothing_and_is_named_by_its_rows,
                exactly_the_plan_is_applied_or_nothing,
                a_change_since_the_plan_is_never_overwritten,
                a_plan_of_another_ledger_is_forged,
                a_person_overrides_single_rows,
                what_recovery_set_aside_is_reported,
                a_proven_death_is_carried_out_at_once,
                two_people_apply_one_plan_at_once,
            }
            recovery {
                rerunnable_work_goes_on,
                started_owner_bound_work_is_left,
                unstarted_owner_bound_work_goes_to_another,
                a_declared_timeout_ends_owner_bound_work,
                an_owner_that_does_not_come_back,
                poison_is_quarantined,
                an_abandon_request_waits_for_the_lapse,
                a_proven_death_is_acted_on_at_once,
                lapses_and_failures_exhaust_together,
                two_sweepers_find_a_lapse_once,
                a_forecast_counts_the_watch_of_a_restarted_sweeper,
            }
            timers {
                retries_back_off_and_exhaust,
                classes_decide_about_retries,
                retry_now_cuts_the_backoff_short,
                a_start_deadline,
                an_execution_deadline,
                an_overall_deadline,
                a_clock_jump_ends_nothing_early_and_delays_nothing,
            }
            waits {
                answered_by_reference,
                answered_by_token_or_person,
                the_first_answer_counts,
                several_waits,
                one_answer_for_many,
                an_attempt_ends_in_the_moment_of_an_answered_wait,
                an_early_answer_is_kept,
                resolve_and_claim_in_one_act,
                a_sessions_waits_are_revoked,
                reserved_references_are_refused,
                waits_are_listed,
                an_answer_fits_its_schema,
                an_early_answer_that_does_not_fit_is_refused,
                an_approval_is_of_what_was_shown,
                an_approval_is_not_reused_for_another_prompt,
                an_answer_that_comes_meanwhile_is_looked_at,
            }
            deadlines {
                each_policy_has_its_end,
                a_default_answers,
                an_escalation_waits_on,
                an_endless_wait_has_no_deadline,
                deadlines_at_the_same_moment,
                answers_race_with_the_deadline,
            }
            family {
                children_follow_their_parent_if_they_asked,
                a_work_waits_for_others,
                ends_at_the_same_moment,
                an_ended_work_answers_at_once,
                works_that_wait_for_each_other,
            }
            operate {
                cancel_what_nobody_holds,
                a_holder_is_asked_to_hand_back,
                cancel_asks_the_holder,
                a_cancel_has_a_deadline,
                cancel_while_stalled,
                quarantine_and_decisions,
                rerun_is_a_new_work,
            }
            dry_run {
                what_would_be_recorded_is_told,
                verbs_answer_as_they_would,
                answers_are_tried_on_what_waits,
                leases_are_never_tried,
                schedules_are_tried_too,
            }
            reads {
                every_filter_means_its_predicate,
                counts_follow_the_states,
                works_and_events_by_key,
                a_cursor_never_skips,
                explanations_say_what_to_do,
                anchors_cover_the_feed,
                a_signed_anchor_is_of_this_ledger,
                the_sweeper_advances_the_ledgers_own_anchor,
                time_is_the_stores,
            }
            past {
                a_work_item_is_shown_as_of_each_of_its_events,
                a_list_is_as_of_a_moment,
                times_that_nobody_knows_are_refused,
                what_was_pruned_is_told,
            }
            tenancy {
                a_foreign_work_does_not_exist,
                lists_keep_to_the_callers_tenants,
                what_tenants_share_a_name_for_stays_their_own,
                the_feed_keeps_to_the_callers_tenants,
                works_are_found_by_the_beginning_of_their_id,
                text_that_nobody_can_have_is_refused,
                workers_of_other_tenants_may_have_the_same_names,
            }
            dues {
                a_page_of_what_is_due_has_all_that_a_call_needs,
                only_the_first_of_a_line_is_due,
                open_commands_are_counted,
            }
            gauges {
                open_works_and_waits_are_counted,
                workers_show_by_their_leases,
                idle_workers_show_by_their_claims,
                what_this_process_did_is_counted,
                the_database_tells_of_itself,
            }
            stuck {
                each_cause_is_found_with_its_evidence,
                stuck_works_of_other_tenants_do_not_exist,
                a_spinning_holder_is_found,
            }
            retention {
                what_ended_long_ago_is_pruned,
                what_something_open_needs_stays,
                a_call_is_bounded,
                anchors_hold_over_what_was_pruned,
            }
            erase {
                erased_content_is_gone_and_the_log_stays,
                only_a_person_erases_what_has_ended,
                a_session_or_a_tenant_is_erased_page_by_page,
            }
            identity {
                a_colleague_is_not_given_the_leases_of_a_repeated_claim,
                only_its_actor_claims_owner_bound_work_again,
                events_keep_the_name_beside_the_id,
                other_kinds_do_not_exist_for_who_is_bound_to_some,
                who_is_bound_to_a_worker_claims_for_no_other,
                who_set_or_ran_a_schedule_submitted_its_works,
                four_eyes_know_submitters_reservers_and_replayers,
                foreign_kinds_are_found_by_no_beginning,
            }
            credentials {
                a_secret_is_kept_once,
                credentials_are_listed_and_revoked,
                credentials_of_one_principal_are_found_together,
                credentials_are_counted_by_the_tenants_they_reach,
                malformed_credentials_are_refused,
                the_last_that_opens_everything_stays,
            }
            schedules {
                schedules_are_kept_with_their_changes,
                schedules_are_listed_by_name,
                malformed_schedules_are_refused,
                a_due_run_is_a_work_like_any_other,
                a_run_is_skipped_while_the_last_is_open,
                missed_runs_are_caught_up_within_bounds,
                many_schedulers_fire_each_run_once,
                a_refused_run_shows_and_blocks_nobody,
                what_was_decided_is_done_by_whoever_comes,
                a_person_runs_a_schedule_now,
            }
            refusal {
                refused_actions_change_nothing,
                verbs_that_do_not_apply,
            }
            crowd {
                no_acknowledged_write_is_lost,
                one_work_many_claimants,
                close_answers_everybody,
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
