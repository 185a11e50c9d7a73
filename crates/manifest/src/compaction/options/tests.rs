use super::*;
use crate::compaction::View;
use crate::testing::manifest;
use siltstone_base::{ErrorKind, UnixMillis};

fn set(name: &str, value: OptionValue) -> Result<CompactionOptions> {
    let mut options = CompactionOptions::default();
    options.set(name, &value)?;
    Ok(options)
}

fn text(name: &str, value: &str) -> Result<CompactionOptions> {
    set(name, OptionValue::Text(value.to_owned()))
}

#[test]
fn the_defaults_are_what_rfc_0018_says() {
    let options = CompactionOptions::default();
    for (name, value) in [
        ("l0_compaction_threshold_ssts", 8),
        ("l0_max_ssts", 16),
        ("max_compactions", 4),
        ("compaction_scheduler_tiered.level_compaction_threshold_runs", 8),
        ("compaction_scheduler_tiered.level_max_runs", 16),
    ] {
        assert_eq!(options.get(name).unwrap(), OptionValue::Int(value), "{name}");
    }
    assert_eq!(options.scheduler(64 << 20).unwrap().name(), "tiered");
}

/// Every line is set and read back, refuses values out of range, and states its range.
#[test]
fn every_option_is_set_and_read_back() {
    for line in CompactionOptions::TABLE {
        if line.kind == OptionKind::Name {
            continue;
        }
        for value in [line.min, line.max] {
            let set = set(line.name, OptionValue::Number(value)).unwrap();
            let back = match set.get(line.name).unwrap() {
                OptionValue::Int(value) => value as f64,
                OptionValue::Number(value) => value,
                other => panic!("{}: {other:?}", line.name),
            };
            assert!((back - value).abs() < 1e-3, "{}: {back}", line.name);
        }
        for value in [line.min - 1.0, line.max * 2.0, f64::NAN] {
            let error = set(line.name, OptionValue::Number(value)).unwrap_err().to_string();
            assert!(error.contains(line.name) && error.contains(&line.range()), "{error}");
        }
        let none = set(line.name, OptionValue::Nothing);
        assert_eq!(none.is_ok(), line.optional, "{}", line.name);
        assert_eq!(text(line.name, "none").is_ok(), line.optional, "{}", line.name);
        assert!(line.doc.ends_with('.'));
    }
    assert!(set("max_compactions", OptionValue::Number(1.5)).is_err());
}

#[test]
fn units_are_understood() {
    assert_eq!(text("target_sst_bytes", "128MiB").unwrap().target_sst_bytes, 128 << 20);
    assert_eq!(text("target_sst_bytes", "1.5 GiB").unwrap().target_sst_bytes, 3 << 29);
    assert_eq!(text("target_sst_bytes", "65536").unwrap().target_sst_bytes, 65536);
    assert_eq!(text("windows.length", "12h").unwrap().windows.length_millis, 12 * 3_600_000);
    assert_eq!(text("windows.length", "1500 ms").unwrap().windows.length_millis, 1500);
    assert_eq!(text("max_space_amplification", "1.1").unwrap().max_space_amplification, Some(1.1));
    for (name, wrong) in [
        ("windows.length", "12 parsecs"),
        ("windows.length", "12MiB"),
        ("target_sst_bytes", "12h"),
        ("target_sst_bytes", ""),
        ("max_compactions", "4 s"),
        ("windows.length", "-5s"),
    ] {
        assert!(text(name, wrong).is_err(), "{name} = {wrong}");
    }
}

#[test]
fn schedulers_are_chosen_by_name() {
    for scheduler in SchedulerName::ALL {
        let chosen = text("compaction_scheduler", scheduler.name()).unwrap();
        assert_eq!(chosen.scheduler(1 << 20).unwrap().name(), scheduler.name());
        let back = OptionValue::Text(scheduler.name().to_owned());
        assert_eq!(chosen.get("compaction_scheduler").unwrap(), back);
    }
    let error = text("compaction_scheduler", "leveled").unwrap_err().to_string();
    assert!(error.contains("tiered, lazy_leveled or time_window"), "{error}");
    let error = text("level_max_run", "3").unwrap_err().to_string();
    assert!(error.contains("level_max_runs") && error.contains("level_max_run"), "{error}");
    assert!(set("compaction_scheduler", OptionValue::Int(1)).is_err());
}

#[test]
fn options_must_fit_each_other() {
    let with = |changes: &[(&str, &str)]| {
        let mut options = CompactionOptions::default();
        for (name, value) in changes {
            options.set(name, &OptionValue::Text((*value).to_owned())).unwrap();
        }
        options.check().map_err(|error| error.to_string())
    };
    let window = ("compaction_scheduler", "time_window");
    let by_key = ("windows.by", "key");
    let keep = ("windows.keep", "9");
    assert!(with(&[window, by_key]).unwrap_err().contains("windows.prefix_bytes"));
    assert!(with(&[window, by_key, ("windows.prefix_bytes", "4"), keep]).is_ok());
    assert!(with(&[window, keep]).unwrap_err().contains("windows.keep"));
    assert!(with(&[("l0_max_ssts", "8")]).unwrap_err().contains("l0_compaction_threshold_ssts"));
    assert!(with(&[("level_max_runs", "8")]).unwrap_err().contains("level_compaction_threshold"));
}

/// Options reach the scheduler.
#[test]
fn a_scheduler_plans_by_its_options() {
    let state = manifest();
    let view = View { state: &state, running: &[], now: UnixMillis(0), max_compactions: 4 };
    let plans = |options: CompactionOptions| options.scheduler(100).unwrap().plans(&view).len();
    assert_eq!(plans(CompactionOptions::default()), 0);
    assert_eq!(plans(text("l0_compaction_threshold_ssts", "1").unwrap()), 1);
    assert_eq!(plans(text("max_total_runs", "1").unwrap()), 1);
    assert_eq!(plans(text("max_space_amplification", "1.1").unwrap()), 1);
    let of_store =
        |own| CompactionOptions { own_space_amplification: own, ..CompactionOptions::default() };
    assert_eq!((plans(of_store(None)), plans(of_store(Some(1.1)))), (0, 1));
    let large = |how: CompactionOptions| how.scheduler(1 << 40).unwrap().plans(&view).len();
    assert_eq!(large(of_store(Some(1.1))), 0, "two tables of L0 may lie above");
    let said = CompactionOptions { max_space_amplification: Some(1000.0), ..of_store(Some(1.1)) };
    assert_eq!(plans(said), 0, "what was said goes before");
    assert_eq!(plans(text("compaction_scheduler", "lazy_leveled").unwrap()), 1);
}

/// For every previous spelling.
#[test]
fn an_option_that_moved_is_refused_with_its_place() {
    for (name, place) in [
        ("window", "windows.length"),
        ("window_by", "windows.by"),
        ("window_prefix_bytes", "windows.prefix_bytes"),
        ("compaction_scheduler_time_window.keep_windows", "windows.keep"),
        ("window_max_runs", "windows.max_runs"),
    ] {
        let error = text(name, "1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&format!("it is {place} now")), "{error}");
        assert!(CompactionOptions::line(place).is_ok());
    }
}
