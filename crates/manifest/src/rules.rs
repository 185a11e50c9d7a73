//! The protocol rules that can be disabled one at a time, so that the explorer can show why each is
//! needed. The product runs with [`Rules::ALL`]; only tests create other sets.

use std::fmt;

macro_rules! rules {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// One rule. Its text says which failure occurs without it.
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
    /// F2: an opener that reads an object of a newer epoch stops. Without it, and without the look
    /// before a fence (a second line of defence), two writers run. One of them is fenced, and rows
    /// that it acknowledged are lost.
    StopAtNewerEpoch,
    /// F2: a walk that reads an older fence continues at its `next_id`. Without it C's walk ends in
    /// the gap at 2, B acknowledges at 3, and C does not replay it.
    JumpOverOlderFence,
    /// F2: the replay point is the next id to read, so behind a fence it is `next_id`. Without it a
    /// later walk starts inside the gap, with the same loss.
    ReplayPointOutsideGap,
    /// F3: a fence at n points to n + W. With n + 1 the old writer's object n + 1 takes the new
    /// writer's first id.
    SkipTheWindow,
    /// F3: W is the largest window of any epoch. With the window of the new writer, an object of an
    /// older writer with a wider window takes the new writer's first id.
    WidestWindow,
    /// F2, M4: an empty id at or below `wal_id_last_seen` is not the end of the log. Without it an
    /// operator deletes a WAL object by hand, and the acknowledged rows behind it are dropped
    /// without an error.
    HoleIsNoEnd,
    /// F2, M4: an empty id is reported as a hole only after the newest manifest (for a reader: the
    /// boundary) has shown that no id there had been freed. Without it an opener that slept, or a
    /// reader that a zombie's fence led astray, reports objects as lost that were collected
    /// correctly.
    ProveHoles,
    /// F2: a hole is judged by a `wal_id_last_seen` that was known before the id was read. With a
    /// later value B reads 1 and finds nothing, A's 1 lands, a reader records that it saw 1, and B
    /// reports a hole.
    JudgeHolesByTheClaim,
    /// E3: an object whose watermark has reached n proves that n was committed, so an empty n is a
    /// hole. Without it an operator deletes a WAL object that no manifest records yet, and the
    /// acknowledged rows behind it are dropped without an error.
    LaterProvesHole,
    /// E3: the watermark of the later object is the proof, not its presence. Without it A sends 1
    /// and 2 at the same time, 2 lands first, and B reports 1 as a hole.
    ProofByWatermark,
    /// E3: after a later object was listed, the empty id is read once more. Without it B reads 1
    /// and finds nothing, A's 1 and 2 land, B lists 2, and reports 1 as a hole.
    ReadAgainBeforeHole,
    /// F2: the manifests are listed before every attempt to fence. Without it B, which was
    /// overtaken, puts a fence into a freed slot. C reads it, jumps past D's fence, and takes D's
    /// first id.
    LookBeforeFence,
    /// F4: after its fence the opener checks that the epoch is still its own. Without it B believes
    /// that it has recovered, on freed ids.
    Confirm,
    /// F4: that check is a listing, not a probe of the next number. With a probe B claims V and
    /// sleeps, C claims V + 1, V + 1 is freed, B probes it, finds nothing, and concludes that its
    /// claim is the newest.
    ConfirmByList,
    /// F5: the manifest keeps the fences that the walk read. Without it A sleeps before it creates
    /// n; B's fence takes n, B dies, C fences further on; n is collected; A creates n and
    /// acknowledges.
    KeepFencesMet,
    /// F5: the manifest keeps the writer's own fence. Without it the same happens with C's own
    /// fence.
    KeepOwnFence,
    /// F5: a clean close makes only the next writer's fence unnecessary. If it waived those that
    /// the walk read as well, a writer older than the one that closed could wake up.
    CleanCloseWaivesOnlyOwn,
    /// F4: only a writer that confirmed its epoch may record a clean close. Without it the close
    /// vouches for an older writer that was never fenced.
    CloseAfterConfirm,
    /// F6: acknowledgements are sent in the order of ids. Without it A acknowledges an object above
    /// the fence that takes a smaller id.
    AcknowledgeInOrder,
    /// F3: a writer sends id i only when every id up to i - W is committed. With a count of the
    /// requests in flight, W = 2: A's create of 1 hangs, B fences 1 and continues at 3; A's 2
    /// lands, so A sends 3 and 4; C replays one of them above B's rows.
    WindowOverPrefix,
    /// M3: after the create of a manifest the boundary is listed. Without it a claim or a
    /// checkpoint lands in a freed slot and counts as committed.
    CheckSlot,
    /// M3: a state settles or refuses an edit only after the boundary proves that its slot had not
    /// been freed when it was read. Without it a committer reads its own late object in a freed
    /// slot and takes it for the newest state.
    VerifyBeforeBelieving,
    /// E1: a manifest counts only if the one before it exists or was freed. Without it a database
    /// is deleted, and a process that does not know this yet creates a manifest at the empty place
    /// and takes it for committed.
    PredecessorStands,
    /// M2: whether a table was added is decided by its reservation, not by its presence. With its
    /// presence, a compaction removes the table, and the repeated commit adds it again.
    SettleByReservation,
    /// F6: a conflict at an id at or below the WAL boundary is Unknown. Without it A's record
    /// lands, C recovers it, the collector frees it, a zombie's fence takes the id, and A reports
    /// Lost.
    CheckWalConflict,
    /// M4: a reader confirms hits against the boundary. Without it the reader takes a zombie's
    /// fence on a freed id for real, jumps into the gap of a real fence, and serves a record that
    /// recovery drops.
    ConfirmHits,
    /// M4, F7: a writer that finds an object with a probe of the next number lists the manifests
    /// before it believes it. Without it a writer that no other has overtaken reads a sleeper's
    /// claim in a freed slot, and ends as Fenced.
    LookAtHits,
    /// C5: a walk that reads an epoch above that of its manifest returns no rows before it has
    /// listed the manifests. Without it a reader returns the new writer's rows on top of rows that
    /// a restore has undone. Where hits are not confirmed, it also believes a zombie's fence in a
    /// freed slot.
    LookUpNewerEpochs,
    /// M4: one poll in N is a listing. Without it a reader that slept past a collection waits for
    /// ever on freed numbers.
    ListSometimes,
    /// M5: every manifest above the boundary keeps its tables. Without it a table of such a
    /// manifest is gone.
    ManifestsKeepTables,
    /// M5, L8: every manifest above the boundary keeps its pending jobs and the names left by older
    /// writers. Without it a feed meets a job in the log whose closing object was collected as soon
    /// as the job was adopted; or a restore voids a job whose rows a reader under a since-lease has
    /// read in the log, and its tables are collected.
    ManifestsKeepPending,
    /// G1: the collector lists objects first and reads manifests last. In another order it deletes
    /// a table that was committed in between.
    CollectorOrder,
    /// M3, G4: the boundary object is created before any object is deleted. Without it a create
    /// lands in a freed slot that the boundary does not cover yet.
    BoundaryFirst,
    /// Before it deletes, the collector checks that the manifests that it read had not been freed
    /// meanwhile. Without it a zombie's manifest in a freed slot passes for the newest.
    CollectorVerifies,
    /// M5: the object of the manifest before the newest stays, even behind the boundary (RFC 0034).
    /// Without it an idle database has one manifest, and one flipped bit in it loses the database.
    KeepManifestBefore,
    /// G3: an expired checkpoint is removed by a commit before its objects count as dead. Without
    /// it a checkpoint that was refreshed in time loses its WAL.
    RevokeFirst,
    /// R1: the collector keeps objects with reserved names. Without it a table is deleted between
    /// its upload and its commit.
    HonourReservations,
    /// R1: the collector keeps the objects that the record of jobs names, both finished tables and
    /// reserved names. Without it the outputs of a running compaction are deleted, and then
    /// committed.
    HonourJobs,
    /// G2: the manifest, the tables and the part of the WAL that a present checkpoint names are
    /// alive. Without it a compaction removes a table, and a reader that pinned it finds it
    /// missing.
    HonourCheckpoints,
    /// R1: a commit checks that the names it adds are still reserved. Without it a stopped writer
    /// commits a table that was collected.
    CheckReservation,
    /// R2: a claim voids the older writer's names. Without it they accumulate for ever, and the
    /// collector may never free the objects that were uploaded under them.
    TakeoverVoidsNames,
    /// R2: a compactor claims its epoch in the manifest before it changes job records. Without it P
    /// deletes the record of a job that Q has resumed, and the collector deletes the job's tables.
    ClaimBeforeJobs,
    /// R2: the commit that ends a job checks the compactor's epoch. Without it P, which was taken
    /// over while it slept, commits a job that Q has aborted and whose tables are deleted.
    FinishByEpoch,
    /// R2: only the compactor of its epoch changes the record of jobs. Without it P, which was
    /// taken over while it slept, removes a job that Q continues, and no record protects the job's
    /// tables.
    RecordByEpoch,
    /// R2: a worker records progress only under its own claim. Without it a worker that was taken
    /// for dead continues, and its rows are in the range twice.
    ProgressByClaim,
    /// R1: a table is recorded only under a name that the record reserves. Without it a worker that
    /// slept records a table that the collector has deleted meanwhile.
    RecordReserved,
    /// U1, G1: the collector keeps the folder of a job that has not ended. Without it the objects
    /// that a unit has uploaded are deleted, and then recorded and committed.
    HonourUnits,
    /// U2: the output of a unit is recorded only if its range is still as the unit found it.
    /// Without it the outputs of two attempts at one unit are both recorded, and a run overlaps
    /// itself.
    UnitsAsTheyStand,
    /// M3: after the create of a record the boundary of records is listed. Without it a job is
    /// started in a freed slot: no other process sees it, and its tables are deleted while it runs.
    CheckRecordSlot,
    /// M2: a commit that found a newer state is planned again on that state. Without it a
    /// compaction that commits beside a flush removes the flushed table, and checkpoints with it.
    PlanOnNewest,
    /// C1, C2: a process that reads tables keeps a checkpoint of the version that it reads. The
    /// commit that gives it that version creates the checkpoint. Without it a compaction removes a
    /// table, the collector deletes it, and the reader finds it missing.
    PinWhatIsRead,
    /// C1: a checkpoint is removed only when every table that is still read through it stays in the
    /// tree. Without it a flush that lands after a compaction releases the tables of a running
    /// scan.
    ReleaseUnread,
    /// C1: a claim removes the older writers' checkpoints. Without it they accumulate for ever,
    /// with every table that they name.
    TakeoverRemovesPins,
    /// G2, L1: the manifests that a present lease covers, and their tables, are alive. Without it a
    /// compaction removes a table, and a reader that joined the lease finds it missing.
    HonourLeases,
    /// L7: while a since-lease is present, the boundary of manifests stays below its first version,
    /// even if age, bytes or a full store demand more. Without it a version that a reader moved to
    /// is collected under its lease.
    HonourSince,
    /// L2: a reader joins a lease only at a version that has the newest tables. Without it a reader
    /// reads tables that are newer than those that the lease covers: they are compacted, collected,
    /// and missing.
    JoinWhatIsRead,
    /// L1: a version that no lease covers any more is not leased again. Without it a collected
    /// version is leased, and its missing tables are reported as Corruption.
    RenewOnlyPresent,
    /// L4: a reader that renews names every version that it still reads. Without it only the newest
    /// is renewed, and a scan on an older one loses its tables.
    RenewWhatIsRead,
    /// L5: a missing table is judged by a look that comes after. Without it a reader that joined a
    /// lease while it was revoked reports Corruption for tables that were collected correctly.
    LookBeforeCorruption,
    /// D1: a database is destroyed under an epoch whose opener has fenced and confirmed. Without it
    /// the writer continues to acknowledge.
    FenceBeforeDestroy,
    /// D3: a removal looks at the manifests once more after it has listed. Without it a destroyer
    /// sleeps, another one finishes, a database is created again, and the first destroyer lists and
    /// deletes that.
    LookAfterListing,
    /// D3: the last manifest is deleted only behind a boundary. Without it a destroyer dies before
    /// its last delete, or sleeps, and a database created in place of the last manifest is lost.
    LastBoundary,
    /// D4: the numbers of a new database are above all numbers of the one before it. Without it
    /// late objects of the old database land in the log of the new one, and late deletes of the old
    /// one remove objects of the new one.
    NumbersGoOn,
    /// S1: a restore is committed under an epoch whose opener has fenced and confirmed. Without it
    /// the undone rows reach a writer that opened meanwhile.
    RestoreByEpoch,
    /// S1: the restored version is pinned by a checkpoint that is present in the very state on
    /// which the restore is committed. Without it a table comes back that was collected.
    RestoreFromPresent,
    /// S1: the flushed sequence number grows to the largest number that was found. With the
    /// checkpoint's number, a reader keeps undone rows, and numbers are given twice.
    RestoreGoesOn,
    /// S1: the replay point moves past the fence. Without it undone rows return.
    RestoreCutsLog,
    /// S1: a restored state takes the histories of the checkpoint. With those of the replaced
    /// state, rows that a restore undid count as undone even after their history was restored.
    RestoreTakesHistory,
    /// N14: an opener or a restore that takes a log over installs the tables of its ingests.
    /// Without it a checkpoint that was made between an ingest and its flush is restored without
    /// that ingest.
    TakeIngestsOver,
    /// S2: a job that was planned before a restore is void. Without it a job that dropped
    /// tombstones at a bottom that the restore filled again is committed, and deleted rows return.
    RestoreVoidsPlans,
    /// X2: the collector keeps the folder of the export that the mirror records. Without it the
    /// staged tables are deleted, and then committed.
    HonourExportJob,
    /// X2: a head is committed under the newest claim, from the recorded folder. Without it an
    /// exporter that slept commits tables of a folder whose job has ended, and these tables are
    /// deleted.
    ExportByClaim,
    /// X2: a head shares only tables that the mirror's state names. Without it a table that left
    /// the head, and is about to be deleted, is named again, and the delete lands.
    ExportSharesHead,
    /// X2: each job has its own folder. Without it a table that left the head is staged again under
    /// its old name, whose delete is pending.
    ExportFreshFolder,
    /// Y2: behind a cut stand W fences in a row. With one, the unreadable object may have been a
    /// fence: the writer that made it is alive, starts behind the one fence, and acknowledges
    /// writes that no process reads.
    FencesInARow,
    /// Y2: the flushed sequence number passes every number that the cut part of the log may
    /// contain. Without it numbers are given twice, and a reader that saw the first use keeps
    /// undone rows.
    CutPassesNumbers,
    /// Y3: a repair that continues from an older manifest takes an epoch above those that the void
    /// manifests may have claimed. Without it two writers have one epoch.
    VoidPassesEpochs,
    /// Y4: when an unreadable table is given up, a cover deletes the rows of its keys in older
    /// tables. Without it rows that the table had deleted or overwritten return.
    CoverWhatIsGivenUp,
    /// Y4: a cover's number is above those of the older tables that it overlaps and below those of
    /// the newer ones. Without it a newer row is hidden in a scan, and found by a look-up.
    CoverBetween,
    /// N10: the result of a job is remembered until no request for it can be accepted. Without it a
    /// repeated request is accepted again after the tables were compacted and collected.
    RememberIngests,
    /// N10: a request below the horizon is refused. Without it the id is forgotten, the request is
    /// repeated, and its files were already freed.
    RequestAboveHorizon,
    /// N10: a job that is forgotten for lack of room lies below the horizon. Without it other jobs
    /// push out the record of an adopted job, which is then requested again and adopted twice.
    ForgetBelowHorizon,
    /// N9: a requested job is not withdrawn. Without it a pending job is withdrawn and collected,
    /// and its INGEST lands.
    WithdrawUnrequested,
    /// N11: a job that a later version of its application has passed is not withdrawn. Without it a
    /// job that is part of the database is reported as aborted.
    WithdrawUnpassed,
    /// N11: a job that began before its application was forgotten is refused. Without it a job
    /// whose record a later version had replaced is adopted again.
    RefuseForgotten,
    /// N11: the object that records the application and version of a job stays as long as the job's
    /// staged tables. Without it a table that is merged away later belongs to no known job, and
    /// stays until its deadline.
    OriginStays,
    /// N12: a writer adopts the pending jobs except those that its log contains. Without it B
    /// adopts a job from the list that it has already replayed, so it comes twice.
    AdoptOnce,
    /// N9: a pending job's folder is alive. Without it the folder is deleted before the writer
    /// adopts the job.
    HonourPending,
    /// N10: a job is dead only after a commit moved the horizon past its deadline. With a clock
    /// alone the folder is deleted, and a request that slept is accepted.
    HorizonFirst,
    /// P2: a table is placed only as deep as no newer table overlaps it. If only its own run is
    /// checked, older values win.
    PlaceBelowNothingNewer,
    /// P3: the outputs of a compaction are cut around tables that were placed into its gaps.
    /// Without it such a job is aborted, and loads starve compaction.
    CutAroundSlotted,
    /// P6: each layer that is installed behind all data has its own number, below all earlier ones.
    /// Without it two jobs have equal numbers, and a merge keeps either.
    BehindCountsDown,
    /// P6: a table that is installed behind all data is placed below all tables that may share a
    /// key with it. If each run is checked alone, the table is placed above older rows, and hides
    /// them.
    BehindBelowAll,
    /// P6: where a job may still be installed behind all data, no run is the bottom. Without it a
    /// compaction drops a tombstone, and the later job revives its key.
    BehindNoBottom,
    /// N15: a claim keeps the names of large batches. Without it B's claim voids x, x is collected,
    /// and B replays the acknowledged INGEST(x).
    KeepLeft,
    /// N15: the collector keeps tables that the log may name. Without it x is collected before it
    /// is installed.
    HonourLeft,
    /// N15: names that older writers left are removed once the replay point has passed the writer's
    /// own fence. Without it B installs another table and releases x, which it has replayed.
    LeftUntilReplayed,
    /// W3: a hold begins at or above the replay point, or where another hold keeps everything
    /// behind it. Without it a walk, a flush, a collection and then the hold leave a gap.
    HoldWhatIsThere,
    /// G2, W3: the part of the log that a present hold needs is alive. Without it a consumer
    /// sleeps, and rows that it has not read are collected.
    HonourHolds,
    /// W4: the original tables of an ingest stay until the holds have passed it. Without it they
    /// are collected once they are compacted, and a replay of the feed returns different rows.
    FeedKeepsIngests,
    /// W4: they stay until every hold has passed. Without it one consumer frees tables that another
    /// still needs.
    FedUntilAllPassed,
    /// W5: only the newest consumer of a name moves its hold. Without it a consumer that slept
    /// frees objects that the active one needs.
    HoldByGeneration,
    /// W6: a hold is taken, kept and moved only in the history of the state. Without it rows that a
    /// restore undid are acknowledged after it, and the next consumer skips rows.
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
