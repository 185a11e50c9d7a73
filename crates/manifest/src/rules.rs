//! The protocol rules that can be left out one at a time, so that the explorer can show what each
//! is for. The product runs with [`Rules::ALL`]; nothing but tests makes another set.

use std::fmt;

macro_rules! rules {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// One rule. Its text says what goes wrong without it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[$meta])* $name,)*
        }

        impl Rule {
            /// Every rule, for tests that drop each in turn.
            pub const EVERY: &'static [Rule] = &[$(Rule::$name,)*];
        }
    };
}

rules! {
    /// F2: an opener that meets an object of a newer epoch stops. Without it, and without the
    /// look before a fence (a second line of defence), two writers run; one is killed, and rows
    /// it acknowledged are gone.
    StopAtNewerEpoch,
    /// F2: a walk that meets an older fence goes on at its `next_id`. Without it C's walk ends in
    /// the gap at 2, B acknowledges at 3, and C lacks it.
    JumpOverOlderFence,
    /// F2: the replay point is the next id to read, so past a fence it is `next_id`. Without it a
    /// later walk starts inside the gap: the same loss.
    ReplayPointOutsideGap,
    /// F3: a fence at n points to n + W. With n + 1 the old writer's object n + 1 takes the new
    /// writer's first id.
    SkipTheWindow,
    /// F3: W is the largest of any epoch. With one's own, a wider old writer's object takes the
    /// new writer's first id.
    WidestWindow,
    /// F2, M4: nothing at an id at or below `wal_id_last_seen` is not the end of the log. Without
    /// it somebody deletes a WAL object by hand, and what was acknowledged behind it is dropped
    /// without a word.
    HoleIsNoEnd,
    /// F2, M4: a hole is called one only once the newest manifest, for a reader the boundary, has
    /// shown that nothing there had been freed. Without it an opener that slept, or a reader that
    /// a zombie's fence led astray, calls what was collected rightly a corruption.
    ProveHoles,
    /// F2: a hole is judged by a `wal_id_last_seen` that was known before the id was read. By a
    /// later one B reads 1 and finds nothing, A's 1 lands, a reader records that it saw 1, and B
    /// calls it a hole.
    JudgeHolesByTheClaim,
    /// E3: an object whose watermark has reached n proves that n was committed, so nothing at n is
    /// a hole. Without it somebody deletes a WAL object that no manifest knows of yet, and what was
    /// acknowledged behind it is dropped without a word.
    LaterProvesHole,
    /// E3: the later object's watermark, not that it is there: A sends 1 and 2 at once, 2 lands
    /// first, and B calls 1 a hole.
    ProofByWatermark,
    /// E3: after something later was listed, the free id is read once more. Without it B reads 1
    /// and finds nothing, A's 1 and 2 land, B lists 2, and calls 1 a hole.
    ReadAgainBeforeHole,
    /// F2: the manifests are listed before every attempt to fence. Without it C meets the fence
    /// that B, overtaken, put into a freed slot, jumps past D's, and takes D's first id.
    LookBeforeFence,
    /// F4: after the fence the opener makes sure that the epoch is still its own. Without it B
    /// believes itself recovered on freed ids.
    Confirm,
    /// F4: and does so by a listing, not by probing the next number: B claims V and sleeps, C
    /// claims V + 1, V + 1 is freed, B probes it, finds nothing, and thinks itself alone.
    ConfirmByList,
    /// F5: fences met on the walk are kept. Without it: A sleeps before creating n; B's fence
    /// takes n, B dies, C fences further on; n is collected; A creates n and acknowledges.
    KeepFencesMet,
    /// F5: one's own fence is kept. Without it the same, with C's own fence.
    KeepOwnFence,
    /// F5: a clean close waives only the fence that the next writer makes. When it waives those
    /// met as well, a writer older than the one that closed wakes up.
    CleanCloseWaivesOnlyOwn,
    /// F4: only a writer that confirmed may record a clean close. Without it the close vouches for
    /// an older writer that was never fenced.
    CloseAfterConfirm,
    /// F6: acknowledgements go out in id order. Without it A acknowledges an object above the
    /// fence that takes a smaller id.
    AcknowledgeInOrder,
    /// F3: id i goes out once every id up to i - W is committed. With a count of what is under way,
    /// W = 2: A's create of 1 hangs, B fences 1 and goes on from 3; A's 2 lands, so A sends 3 and
    /// 4; C replays one of them above B's rows.
    WindowOverPrefix,
    /// M3: after creating a manifest the boundary is listed. Without it a claim or a checkpoint
    /// lands in a freed slot and is believed.
    CheckSlot,
    /// M3: a state is believed, for settling or refusing an edit, only once the boundary proves
    /// that its slot had not been freed when it was read. Without it a committer reads its own
    /// late landing in a freed slot and takes it for the newest state.
    VerifyBeforeBelieving,
    /// E1: a manifest counts only where the one before it stands, or was freed. Without it a
    /// database is deleted, and a process that does not know of it yet takes the manifest that it
    /// creates on the empty place for committed.
    PredecessorStands,
    /// M2: an added table is recognised by "is its name still reserved?". With "is it there?" a
    /// compaction takes the table away, and the retried commit adds it again.
    SettleByReservation,
    /// F6: a conflict at an id at or below the WAL boundary is Unknown. Without it A's record
    /// lands, C recovers it, gc frees it, a zombie's fence takes the id, and A says "lost".
    CheckWalConflict,
    /// M4: a reader confirms hits against the boundary. Without it it takes a zombie's fence on a
    /// freed id, jumps into the gap of a real one, and serves a record that recovery drops.
    ConfirmHits,
    /// M4, F7: what a probe of the next number hits is looked at properly before it is believed.
    /// Without it a writer that nobody has overtaken reads a sleeper's claim in a freed slot, and
    /// ends as Fenced.
    LookAtHits,
    /// C5: a walk that meets an epoch above its manifest's hands nothing out before a look by a
    /// listing. Without it a reader hands out the new writer's rows on top of those that a restore
    /// has undone; and it believes a zombie's fence in a freed slot where hits are not confirmed.
    LookUpNewerEpochs,
    /// M4: one poll in N is a listing. Without it a reader that slept past gc waits for ever on
    /// freed numbers.
    ListSometimes,
    /// M5: every manifest above the boundary keeps its tables. Without it a table under such a
    /// manifest is gone.
    ManifestsKeepTables,
    /// G1: the collector lists objects first and reads manifests last. In another order it deletes
    /// a table that was committed in between.
    CollectorOrder,
    /// M3, G4: the boundary object is created before anything is deleted. Without it a create
    /// lands in a freed slot while the boundary does not say so yet.
    BoundaryFirst,
    /// The collector makes sure, before it deletes, that what it read had not been freed under it.
    /// Without it a zombie's manifest in a freed slot passes for the newest.
    CollectorVerifies,
    /// The object of the manifest before the newest stays, behind the boundary too (RFC 0034).
    /// Without it a database at rest has one manifest, and one flipped bit in that ends everything.
    KeepManifestBefore,
    /// G3: an expired checkpoint is removed by a commit before what it names counts as dead.
    /// Without it a checkpoint that was refreshed in time loses its WAL.
    RevokeFirst,
    /// R1: the collector leaves reserved names alone. Without it a table is deleted between its
    /// upload and its commit.
    HonourReservations,
    /// R1: the collector leaves alone what the record of jobs names, finished tables and names to
    /// come alike. Without it the outputs of a running compaction are deleted, and then committed.
    HonourJobs,
    /// G2: what a present checkpoint names is alive: its manifest, its tables, its part of the WAL.
    /// Without it a compaction takes a table away, and a reader that pinned it finds a hole.
    HonourCheckpoints,
    /// R1: a commit checks that the names it adds are still reserved. Without it a stopped writer
    /// commits a table that was collected.
    CheckReservation,
    /// R2: a claim voids the older writer's names. Without it they pile up for ever, and the
    /// collector may never free what was uploaded under them.
    TakeoverVoidsNames,
    /// R2: a compactor claims its epoch in the manifest before it touches job records. Without it
    /// P deletes the record of a job that Q has resumed, and gc deletes the job's tables.
    ClaimBeforeJobs,
    /// R2: the commit that ends a job is checked against the compactor's epoch. Without it P, taken
    /// over and asleep, commits a job that Q has given up, and whose tables are deleted.
    FinishByEpoch,
    /// R2: the record of jobs is changed by the compactor of its epoch alone. Without it P, taken
    /// over and asleep, forgets a job that Q goes on with, and its tables are nobody's.
    RecordByEpoch,
    /// R2: progress is recorded under one's own claim alone. Without it a worker that was taken for
    /// dead goes on, and its rows stand in the range a second time.
    ProgressByClaim,
    /// R1: a table is recorded only under a name that the record reserves. Without it a worker that
    /// slept records what the collector deleted meanwhile.
    RecordReserved,
    /// U1, G1: the collector leaves alone the folder of a job that has not ended. Without it what a
    /// unit has uploaded is deleted, and then recorded and committed.
    HonourUnits,
    /// U2: what a unit made is recorded only where its range stands as the unit found it. Without
    /// it two attempts at one unit are both recorded, and a run overlaps itself.
    UnitsAsTheyStand,
    /// M3: after creating a record the boundary of records is listed. Without it a job is started
    /// in a freed slot: nobody else sees it, and its tables are deleted under it.
    CheckRecordSlot,
    /// M2: a commit that met a newer state is planned on that one. Without it a compaction that is
    /// committed beside a flush takes the flushed table out again, and with it checkpoints.
    PlanOnNewest,
    /// C1, C2: whoever reads tables keeps a checkpoint of the version it reads, made by the very
    /// commit that gives it that version. Without it a compaction takes a table away, gc deletes
    /// it, and the tree in the reader's hand has a hole.
    PinWhatIsRead,
    /// C1: a checkpoint goes only when every table that is still read through it stays. Without it
    /// a flush that lands after a compaction lets go of what a scan is reading.
    ReleaseUnread,
    /// C1: a claim removes the older writers' checkpoints. Without it they pile up for ever, and
    /// with them every table they name.
    TakeoverRemovesPins,
    /// G2, L1: what a present lease covers is alive, its manifests and their tables. Without it a
    /// compaction takes a table away, and a reader that joined the lease finds a hole.
    HonourLeases,
    /// L7: while a since-lease is present, the boundary of manifests stays below its first version,
    /// whatever age, bytes or a full store ask for. Without it what a reader moved on to is
    /// collected under its lease.
    HonourSince,
    /// L8: jobs that are pending, and names that are left, in a version that a since-lease covers
    /// are alive. Without it a restore voids a job whose rows a reader of that version has met in
    /// the log, and its tables are collected under the lease.
    SinceKeepsPending,
    /// L2: a lease is joined only at a version that has the newest tables. Without it a reader
    /// reads tables that came after what the lease covers: they are compacted, collected, and
    /// missing.
    JoinWhatIsRead,
    /// L1: a version that no lease has any more does not come back. Without it what was collected
    /// is leased anew, and its absence is called a corruption.
    RenewOnlyPresent,
    /// L4: who renews names every version that it still reads. Without it the newest is renewed,
    /// and a scan on an older one loses its tables.
    RenewWhatIsRead,
    /// L5: a table that is missing is judged by a look that comes after. Without it a reader that
    /// joined a lease while it was being revoked calls what was collected rightly a corruption.
    LookBeforeCorruption,
    /// D1: a database is destroyed under an epoch whose opener has fenced and confirmed. Without it
    /// the writer acknowledges on.
    FenceBeforeDestroy,
    /// D3: a removal looks once more after it has listed. Without it a destroyer sleeps, another
    /// one finishes, a database is made anew, and the sleeper lists and deletes that.
    LookAfterListing,
    /// D3: the last manifest goes only behind a boundary. Without it a destroyer dies before its
    /// last delete, or sleeps, and what is made in the place of the last manifest is lost.
    LastBoundary,
    /// D4: numbers of a new database are above all that the one before it had. Without it what the
    /// old one sent lands in the new one's log, and its late deletes hit the new one.
    NumbersGoOn,
    /// S1: a restore is committed under an epoch whose opener has fenced and confirmed. Without it
    /// what it undid reaches a writer that opened meanwhile.
    RestoreByEpoch,
    /// S1: what is restored is pinned by a checkpoint that is present in the very state that the
    /// restore is committed on. Without it a table comes back that was collected.
    RestoreFromPresent,
    /// S1: what counts as flushed grows to the largest number met. With the checkpoint's own, a
    /// reader keeps undone rows, and numbers are given twice.
    RestoreGoesOn,
    /// S1: the replay point moves past the fence. Without it undone rows return.
    RestoreCutsLog,
    /// S1: the histories of a restored state are those of the checkpoint. With those that stood
    /// before, what a restore undid counts as undone after its history was restored itself.
    RestoreTakesHistory,
    /// N14: whoever takes a log over installs what its ingests bring. Without it a checkpoint that
    /// was made between an ingest and its flush comes back without it.
    TakeIngestsOver,
    /// S2: a job that was planned before a restore is void. Without it one that dropped tombstones
    /// at a bottom that the restore filled again is committed, and deleted rows return.
    RestoreVoidsPlans,
    /// X2: the collector spares the folder of the export that the mirror records. Without it what
    /// is staged is deleted, and then committed.
    HonourExportJob,
    /// X2: a head is committed under the newest claim, out of the folder that is recorded. Without
    /// it an exporter that slept commits tables of a folder that has ended, and that are deleted.
    ExportByClaim,
    /// X2: a head shares only tables that the mirror's state names. Without it a table that left
    /// the head, and is to be deleted, is named again, and the delete lands.
    ExportSharesHead,
    /// X2: each job has a folder of its own. Without it a table that left the head is staged again
    /// under its old name, which is to be deleted.
    ExportFreshFolder,
    /// Y2: behind a cut W fences stand in a row. With one, what could not be read was a fence: its
    /// maker, alive, begins behind the one, and acknowledges what nobody will read.
    FencesInARow,
    /// Y2: what counts as flushed passes every number that what is cut off may hold. Without it
    /// numbers are given twice, and a reader that had seen the first keeps undone rows.
    CutPassesNumbers,
    /// Y3: who goes on from an older manifest takes an epoch beyond those that the void ones may
    /// have claimed. Without it two writers have one epoch.
    VoidPassesEpochs,
    /// Y4: where a table is given up that nobody can read, a cover deletes what older tables hold
    /// of its keys. Without it what it had deleted or overwritten returns.
    CoverWhatIsGivenUp,
    /// Y4: a cover's number lies above those of the older tables that it meets and below those of
    /// the newer ones. Without it a newer row is hidden in a scan, and read by a look-up.
    CoverBetween,
    /// N10: what became of a job is remembered until no request of it can be accepted. Without it
    /// a repeated request is taken in again, after the tables were compacted, and collected.
    RememberIngests,
    /// N10: a request below the horizon is refused. Without it the id is forgotten, the request is
    /// repeated, and its files were freed already.
    RequestAboveHorizon,
    /// N10: what is forgotten for want of room lies below the horizon. Without it a job that was
    /// taken in is asked for again once others have pushed it out, and is taken in twice.
    ForgetBelowHorizon,
    /// N9: a job that is asked for is not taken back. Without it a pending job is withdrawn and
    /// collected, and its INGEST lands.
    WithdrawUnrequested,
    /// N11: a job that a later version of its application has passed is not taken back. Without it
    /// what is part of the database is called aborted.
    WithdrawUnpassed,
    /// N11: a job that began before its application was forgotten is refused. Without it one whose
    /// record a later version had replaced is taken in again.
    RefuseForgotten,
    /// N11: the object that says whose version a job is stays as long as what the job staged.
    /// Without it a table that is merged away later is nobody's, and stays until its deadline.
    OriginStays,
    /// N12: a writer adopts what is pending less what its log brought back. Without it B adopts
    /// from the list what it has replayed: twice.
    AdoptOnce,
    /// N9: what is pending is alive. Without it the folder goes before the writer takes it in.
    HonourPending,
    /// N10: a job is dead once the horizon has passed its deadline, by a commit. By a clock alone
    /// the folder goes, and a request that slept is accepted.
    HorizonFirst,
    /// P2: a table goes only as deep as nothing newer lies over it. With a look at its own run
    /// alone older values win.
    PlaceBelowNothingNewer,
    /// P3: what a compaction brings is cut around tables that were slotted into its gaps. Without
    /// it such a job is given up, and loads starve compaction.
    CutAroundSlotted,
    /// P6: each layer that comes behind has a number of its own, below all before it. Without it
    /// two jobs tie, and a merge keeps either.
    BehindCountsDown,
    /// P6: a table that comes behind goes below all that it may share a key with. With a look at
    /// each run alone it lands above older rows, and hides them.
    BehindBelowAll,
    /// P6: where something may come behind, nothing is the bottom. Without it a compaction drops a
    /// tombstone, and what comes behind revives its key.
    BehindNoBottom,
    /// N15: a claim leaves the names of large batches as they are. Without it B's claim voids x, x
    /// is collected, and B replays the acknowledged INGEST(x).
    KeepLeft,
    /// N15: the collector leaves alone what the log may name. Without it x is collected before it
    /// is installed.
    HonourLeft,
    /// N15: what older writers left goes once the replay point has passed the own fence. Without
    /// it B installs some other table and lets x go, which it has replayed.
    LeftUntilReplayed,
    /// W3: a hold begins at or above the replay point, or where another one keeps all behind it.
    /// Without it: walk, flush, collection, hold: a gap.
    HoldWhatIsThere,
    /// G2, W3: what a present hold needs of the log is alive. Without it a consumer sleeps, and
    /// what it has not read is collected.
    HonourHolds,
    /// W4: the originals of an ingest stay until the holds have passed it. Without it they are
    /// collected once they are compacted, and a feed that replays gives something else.
    FeedKeepsIngests,
    /// W4: until every hold has. Without it one consumer frees what another still needs.
    FedUntilAllPassed,
    /// W5: only the newest consumer of a name moves its hold. Without it one that slept frees what
    /// the live one needs.
    HoldByGeneration,
    /// W6: a hold moves, stays and begins only in the history that the state is of. Without it what
    /// a restore undid is acknowledged after it, and the next consumer goes on behind.
    HoldInHistory,
}

/// A set of rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules(u128);

impl Rules {
    /// Every rule: what the product runs with.
    pub const ALL: Rules = Rules(u128::MAX);

    /// These rules, except `rule`.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Rules {
        Rules(self.0 & !(1 << rule as u32))
    }

    /// Whether `rule` is in force.
    #[must_use]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dropped = Rule::EVERY.iter().filter(|rule| !self.has(**rule)).peekable();
        if dropped.peek().is_none() {
            return f.write_str("Rules::ALL");
        }
        f.write_str("Rules without ")?;
        f.debug_list().entries(dropped).finish()
    }
}

const _: () = assert!(Rule::EVERY.len() <= u128::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_one_rule_drops_no_other() {
        for dropped in Rule::EVERY {
            let rules = Rules::ALL.without(*dropped);
            let missing: Vec<_> = Rule::EVERY.iter().filter(|rule| !rules.has(**rule)).collect();
            assert_eq!(missing, vec![dropped]);
        }
    }
}
