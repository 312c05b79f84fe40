//! Loading as a store does it, from the world's records: only the load set. A decision over that part must
//! equal the decision over all records, or a database would decide differently.

use tenure_core::{
    Command, Decision, LoadSet, Millis, Records, Refusal, Submission, WorkId, decide, records::Sought,
};

const ROUNDS: usize = 6;

pub fn load_set_suffices(
    all: &Records,
    submission: &Submission,
    now: Millis,
    outcome: &Result<Decision, Refusal>,
) {
    let part = load(all, submission);
    let again = decide(&part, submission, now);
    assert_eq!(
        format!("{again:?}"),
        format!("{outcome:?}"),
        "the load set of {:?} loads too little",
        submission.action
    );
}

fn load(all: &Records, submission: &Submission) -> Records {
    let mut part = Records { policy_version: all.policy_version.clone(), ..Records::default() };
    let mut load_set = LoadSet::default();
    load_set.first(submission);
    for _ in 0..ROUNDS {
        if load_set.is_empty() {
            return part;
        }
        fill(all, &mut part, &load_set);
        load_set = LoadSet::default();
        load_set.then(submission, &part);
    }
    panic!("the load set of {:?} never ends: {load_set:?}", submission.action);
}

fn fill(all: &Records, part: &mut Records, load_set: &LoadSet) {
    for id in &load_set.works {
        work(all, part, *id);
    }
    for id in &load_set.peers {
        part.peers.insert(*id, all.works.get(id).map(|work| (**work).clone()));
    }
    for identity in &load_set.identities {
        part.identities.insert(identity.clone(), all.identities.get(identity).copied().flatten());
    }
    for key in &load_set.references {
        let works = all.references.get(key).cloned().unwrap_or_default();
        works.iter().for_each(|id| work_with_waits(all, part, *id));
        part.references.insert(key.clone(), works);
        part.kept.insert(key.clone(), all.kept.get(key).cloned().flatten());
    }
    for id in &load_set.wait_ids {
        if let Some(owner) = all.wait_ids.get(id) {
            part.wait_ids.insert(*id, *owner);
            work_with_waits(all, part, *owner);
        }
    }
    for key in &load_set.sessions {
        part.sessions.insert(key.clone(), all.sessions.get(key).copied().unwrap_or_default());
    }
    for key in &load_set.kept {
        part.kept.insert(key.clone(), all.kept.get(key).cloned().flatten());
    }
    for key in &load_set.requests {
        let given = all.requests.get(key).cloned().unwrap_or_default();
        given.iter().for_each(|(id, _)| work(all, part, *id));
        part.requests.insert(*key, given);
    }
    for key in &load_set.ends {
        part.ends.insert(*key, all.ends.get(key).cloned().flatten());
    }
    for id in &load_set.steps {
        part.steps.insert(*id, all.steps.get(id).cloned().unwrap_or_default());
    }
    for id in &load_set.waits {
        part.waits.insert(*id, all.waits.get(id).cloned().unwrap_or_default());
    }
    for id in &load_set.inputs {
        part.inputs.insert(*id, all.inputs.get(id).cloned().flatten());
    }
    for id in &load_set.command_ids {
        if let Some(owner) = all.command_ids.get(id) {
            part.command_ids.insert(*id, *owner);
            work(all, part, *owner);
        }
    }
    for sought in &load_set.commands {
        part.looked_for.insert(*sought);
        let found = |command: &&Command| match sought {
            Sought::Id(id) => command.id == *id,
            Sought::Key(work, key) => {
                command.work == *work && command.spec.key == *key && command.is_current()
            }
            Sought::Outgoing(work) => {
                command.work == *work && !command.is_worker() && command.state.is_idle()
            }
            Sought::Open(work) => command.work == *work && command.is_worker() && command.state.is_open(),
        };
        for command in all.commands.values().flatten().filter(found) {
            part.command_ids.insert(command.id, command.work);
            let known = part.commands.entry(command.work).or_default();
            if !known.iter().any(|there| there.id == command.id) {
                known.push(command.clone());
                known.sort_by_key(|command| (command.created_at, command.id));
            }
        }
    }
    for key in &load_set.earlier {
        part.earlier.insert(*key, all.earlier.get(key).cloned().flatten());
    }
    for key in &load_set.heads {
        part.heads.insert(key.clone(), all.heads.get(key).copied().flatten());
    }
    for key in &load_set.budgets {
        part.budgets.insert(key.clone(), all.budgets.get(key).copied().unwrap_or_default());
    }
    for tenant in &load_set.kept_counts {
        part.kept_counts.insert(tenant.clone(), all.kept_counts.get(tenant).copied().unwrap_or(0));
    }
}

fn work(all: &Records, part: &mut Records, id: WorkId) {
    part.works.extend(all.works.get(&id).map(|work| (id, work.clone())));
}

fn work_with_waits(all: &Records, part: &mut Records, id: WorkId) {
    work(all, part, id);
    part.waits.insert(id, all.waits.get(&id).cloned().unwrap_or_default());
}
