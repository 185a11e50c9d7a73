//! Tests the curve over random options and loads.

use super::*;

/// A deterministic generator of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn options(&mut self) -> Options {
        let mut options = Options::default();
        options.l0_sst_size_bytes = 1024 + self.next(1 << 27) as usize;
        options.max_memtable_bytes = options.l0_sst_size_bytes + self.next(1 << 28) as usize;
        options.compaction.l0_compaction_threshold_ssts = 1 + self.next(20);
        options.compaction.l0_max_ssts =
            options.compaction.l0_compaction_threshold_ssts + 1 + self.next(20);
        options.compaction.max_pending_compaction_bytes =
            (self.next(2) == 0).then(|| 1 + self.next(1 << 40));
        options.validate().unwrap();
        options
    }

    fn load(&mut self, options: &Options) -> Load {
        Load {
            unflushed: self.next(2 * options.max_memtable_bytes as u64) as usize,
            l0: self.next(2 * options.compaction.l0_max_ssts),
            pending: self.next(1 << 41),
            above: (self.next(2) == 0).then(|| self.above()),
        }
    }

    fn above(&mut self) -> SpaceAmplification {
        let (coming, slow_from) = (1 + self.next(1 << 27), self.next(1 << 32));
        let most = slow_from + self.next(1 << 30);
        SpaceAmplification { bytes: self.next(1 << 33), coming, slow_from, most }
    }
}

#[test]
fn more_of_anything_is_never_less_pressure() {
    let mut numbers = Numbers(1);
    for _ in 0..20_000 {
        let options = numbers.options();
        let limits = StallLimits::of(&options);
        let load = numbers.load(&options);
        let more = Load {
            unflushed: load.unflushed + numbers.next(1 << 26) as usize,
            l0: load.l0 + numbers.next(3),
            pending: load.pending + numbers.next(1 << 38),
            above: load.above.map(|above| SpaceAmplification {
                bytes: above.bytes + numbers.next(1 << 28),
                ..above
            }),
        };
        let (before, after) = (limits.pressure(&load).0, limits.pressure(&more).0);
        assert!((0.0..=1.0).contains(&before) && before <= after, "{options:?} {load:?} {more:?}");
        assert!(limits.rate(after) <= limits.rate(before));
        assert!(limits.full(&load).is_none() || limits.full(&more).is_some());
        // Writes stop only after the slowest rate.
        assert!(limits.full(&load).is_none() || before == 1.0, "{options:?} {load:?}");
        // There is no pressure where the single comparison lets a write pass.
        let calm = load.unflushed < limits.calm_below(&load);
        assert!(!calm || (before == 0.0 && limits.full(&load).is_none()), "{options:?} {load:?}");
    }
    let limits = StallLimits::of(&Options::default());
    assert_eq!((limits.rate(0.0), limits.rate(1.0)), (FASTEST, 1_048_576.0));
}

#[test]
fn the_defaults_slow_down_where_the_rfc_says() {
    let limits = StallLimits::of(&Options::default());
    let l0 = |l0, unflushed| limits.pressure(&Load { unflushed, l0, ..Load::default() }).0;
    assert_eq!((l0(12, 0), l0(14, 0), l0(16, 0)), (0.0, 0.5, 1.0));
    // Half a memtable is half a layer.
    assert_eq!(l0(13, 32 << 20), 0.375);
    assert_eq!((l0(0, 192 << 20), l0(0, 224 << 20)), (0.0, 0.5));
    assert_eq!(limits.full(&Load { l0: 16, ..Load::default() }), Some(StallCause::L0));
    assert_eq!(limits.full(&Load { l0: 15, ..Load::default() }), None);
    let memory = Load { unflushed: 256 << 20, ..Load::default() };
    assert_eq!(limits.full(&memory), Some(StallCause::Memory));
    assert_eq!(limits.pressure(&Load { pending: u64::MAX, ..Load::default() }).0, 0.0);
}

/// Space amplification slows writes down to the slowest rate and never stops them.
#[test]
fn layers_above_slow_writes_down_and_never_stop_them() {
    let limits = StallLimits::of(&Options::default());
    let load = |bytes, unflushed| {
        let above =
            SpaceAmplification { bytes, coming: 50 << 20, slow_from: 250 << 20, most: 300 << 20 };
        Load { unflushed, above: Some(above), ..Load::default() }
    };
    let pressure = |bytes: u64, unflushed| limits.pressure(&load(bytes << 20, unflushed));
    assert_eq!(pressure(250, 0), (0.0, StallCause::Memory));
    assert_eq!(pressure(275, 0), (0.5, StallCause::Pending));
    // Half a memtable is half of the next layer.
    assert_eq!(pressure(250, 32 << 20), (0.5, StallCause::Pending));
    assert_eq!(pressure(9000, 0), (1.0, StallCause::Pending));
    assert_eq!(limits.full(&load(u64::MAX, 0)), None);
}

/// Two figures share one cause; the log line names the larger one.
#[test]
fn the_larger_of_two_measures_is_named() {
    let mut options = Options::default();
    options.compaction.max_pending_compaction_bytes = Some(100);
    let limits = StallLimits::of(&options);
    let load = |pending, bytes| {
        let above = SpaceAmplification { bytes, coming: 1, slow_from: 200, most: 300 };
        Load { pending, above: Some(above), ..Load::default() }
    };
    // Both measures at one half; then each of them larger; then nothing above the last layer.
    assert_eq!(limits.by_space(&load(75, 250)), None);
    assert_eq!(limits.by_space(&load(75, 260)).map(|above| above.bytes), Some(260));
    assert_eq!(limits.by_space(&load(90, 260)), None);
    assert_eq!(limits.by_space(&Load { above: None, ..load(75, 0) }), None);
}

#[test]
fn no_write_waits_long_by_the_rate_and_the_rate_holds() {
    let mut numbers = Numbers(2);
    for _ in 0..300 {
        let options = numbers.options();
        let pressure = Pressure::new(&options);
        let slows = |load: &Load| {
            pressure.limits.pressure(load).0 > 0.0 && pressure.limits.full(load).is_none()
        };
        // Some options have no range between calm and full.
        let mut tried = std::iter::repeat_with(|| numbers.load(&options)).take(1000);
        let Some(load) = tried.find(slows) else {
            continue;
        };
        let rate = pressure.limits.rate(pressure.limits.pressure(&load).0);
        let (mut now, mut due) = (Duration::from_secs(9), Duration::ZERO);
        let began = now;
        let (mut bytes, mut waits) = (0.0, 0);
        for _ in 0..500 {
            // From one row to a batch of a thousand rows.
            let write = 1 + numbers.next(116_000) as usize;
            if let Err(hold) = pressure.admit(&load, write, now, &mut due) {
                let until = hold.until.unwrap();
                assert!(until > now && until <= now + LONGEST_DELAY);
                waits += 1;
                now = until;
                assert_eq!(pressure.admit(&load, write, now, &mut due), Ok(()));
            }
            bytes += write as f64;
        }
        // A batch that costs more than the longest wait is still admitted.
        let paid = |seconds: f64| seconds * rate.max(116_000.0 / LONGEST_DELAY.as_secs_f64());
        let allowed = paid((now - began + GRACE).as_secs_f64()) + 116_000.0;
        assert!(bytes <= allowed * 1.001, "{bytes} of {allowed}");
        // Waits are at least as long as a timer's tick.
        assert!(Duration::from_millis(5) * waits <= now - began);
    }
}

#[test]
fn a_batch_of_any_size_is_paid_in_half_a_second() {
    let pressure = Pressure::new(&Options::default());
    let load = Load { l0: 15, unflushed: 64 << 20, ..Load::default() };
    let mut due = Duration::ZERO;
    let now = Duration::from_secs(5);
    assert_eq!(pressure.admit(&load, 1 << 30, now, &mut due), Ok(()));
    assert_eq!(due, now + LONGEST_DELAY);
    let hold = pressure.admit(&load, 1, now, &mut due).unwrap_err();
    assert_eq!(hold, Hold { cause: StallCause::L0, until: Some(due) });
}

#[test]
fn without_pressure_no_write_waits_for_what_an_earlier_pressure_charged() {
    let pressure = Pressure::new(&Options::default());
    let (mut due, now) = (Duration::ZERO, Duration::from_secs(5));
    let high = Load { l0: 15, unflushed: 64 << 20, ..Load::default() };
    assert_eq!(pressure.admit(&high, 1 << 30, now, &mut due), Ok(()));
    assert!(pressure.admit(&high, 1, now, &mut due).is_err());
    assert_eq!(pressure.admit(&Load::default(), 1, now, &mut due), Ok(()));
    // When the pressure rises again, the charges begin anew.
    assert_eq!(pressure.admit(&high, 1, now, &mut due), Ok(()));
}
