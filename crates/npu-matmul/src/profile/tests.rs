// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid profiles are used where they apply; others are rejected.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::file::FILE_BYTES_MAX;
use super::find::{PLACE, PROFILE_VARIABLE};
use super::*;
use crate::numbers::dtype::Dtype;
use crate::plan::{Plan, PlanOptions, WeightPlan};

fn options(m: usize) -> PlanOptions {
    PlanOptions {
        batch_rows: m,
        ..PlanOptions::default()
    }
}

fn profile() -> Profile {
    Profile {
        board: Some(Board {
            board: "Some Board".to_owned(),
            kernel: "7.1.0".to_owned(),
            is_model: false,
            assigned_hz: None,
        }),
        ..Profile::clone(&Profile::built_in())
    }
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(&Dtype::ALL[..])
}

/// Small, large and absurd numbers.
fn number() -> impl Strategy<Value = usize> {
    (any::<usize>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn damage_is_an_error_or_another_profile(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut json = profile().to_json().unwrap().into_bytes();
        let cut = cut.index(json.len() - 1);
        prop_assert!(Profile::from_json(&json[..cut]).is_err());
        let at = at.index(json.len());
        json[at] = byte;
        if let Ok(read) = Profile::from_json(&json) {
            let again = read.to_json().unwrap();
            prop_assert_eq!(Profile::from_json(again.as_bytes()).unwrap(), read);
        }
    }
}

/// Applies a change to the JSON of a valid profile.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Profile, ProfileError> {
    let json = profile().to_json().unwrap();
    let mut value: Value = serde_json::from_str(&json).unwrap();
    change(&mut value);
    Profile::from_json(value.to_string().as_bytes())
}

#[test]
fn impossible_values_are_refused_by_name() {
    assert!(changed(|_| ()).is_ok());
    let json = "it is not a board profile";
    let text = "a text field is";
    let mut changes = vec![
        ("/format", json!("x"), "its format is \"x\""),
        ("/version", json!(2), "version 2"),
        ("/profile/envelope/0/dtype", json!("int2"), json),
        ("/profile/envelope/0/rows", json!(-1), json),
        ("/profile/envelope/0/rows", json!(1e99), json),
        ("/profile/envelope/0", json!(1), json),
        ("/profile/envelope", json!({}), json),
        ("/profile/machine/chip", json!("rk3576"), json),
        ("/profile", json!([]), json),
    ];
    for bad in ["two\nlines".to_owned(), "x".repeat(257)] {
        changes.extend([
            ("/profile/name", json!(bad), text),
            ("/profile/board/kernel", json!(bad), text),
            ("/profile/envelope/0/evidence", json!(bad), text),
        ]);
    }
    for (path, to, why) in changes {
        let refused = changed(|value| *value.pointer_mut(path).unwrap() = to).unwrap_err();
        assert!(refused.to_string().contains(why), "{path}: {refused}");
    }
    let unknown = changed(|value| value["profile"]["envelope"][0]["colour"] = json!("red"));
    assert!(matches!(unknown, Err(ProfileError::Json(_))));
    let nested = "[".repeat(100_000);
    assert!(matches!(
        Profile::from_json(nested.as_bytes()),
        Err(ProfileError::Json(_))
    ));
    let long = vec![b' '; FILE_BYTES_MAX as usize + 1];
    assert!(matches!(
        Profile::from_json(&long),
        Err(ProfileError::TooLong)
    ));
}

#[test]
fn numbers_out_of_range_are_refused_by_their_name() {
    let cost = "a cost of the driver";
    for (path, value, name) in [
        ("machine/clock_hz", 999_999, "clock_hz"),
        ("machine/driver/submit_ps", u64::MAX, cost),
        ("machine/driver/attach_ps", u64::MAX, cost),
        ("machine/driver/kick_ps", u64::MAX, cost),
        ("machine/driver/wake_ps", u64::MAX, cost),
        (
            "machine/dram/core_bytes_per_second",
            0,
            "core_bytes_per_second",
        ),
        (
            "machine/dram/shared_bytes_per_second",
            0,
            "shared_bytes_per_second",
        ),
        (
            "machine/dram/core_bytes_per_clock",
            1025,
            "core_bytes_per_clock",
        ),
        ("host/clock_hz", u64::MAX, "clock_hz"),
        ("host/bytes_per_second", 1, "bytes_per_second"),
        ("host/sync_bytes_per_second", 1, "sync_bytes_per_second"),
        ("host/cores", 0, "cores"),
        ("host/instructions_per_clock", 0, "instructions_per_clock"),
        ("choices/slack_bytes/value", (1 << 20) + 1, "slack_bytes"),
    ] {
        let set = |json: &mut Value| {
            *json.pointer_mut(&format!("/profile/{path}")).unwrap() = json!(value);
        };
        let refused = changed(set).unwrap_err().to_string();
        assert_eq!(refused, format!("{name} is {value}, which is out of range"));
    }
}

#[test]
fn files_are_regular_and_short() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let procfs = std::path::Path::new("/proc/self/status");
    for unread in [folder.path(), "/dev/zero".as_ref(), procfs, &file] {
        let refused = Profile::read(unread);
        assert!(matches!(refused, Err(ProfileError::Read { .. })));
    }
    let written = profile();
    std::fs::write(&file, written.to_json().unwrap()).unwrap();
    assert_eq!(Profile::read(&file).unwrap(), written);
    std::fs::write(&file, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
    let long = Profile::read(&file).unwrap_err();
    assert!(long.to_string().contains("longer than"), "{long}");
}

#[test]
fn the_first_place_that_has_a_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).join(PLACE);
    let home = folder.path().join("home");
    let of = |set: &[(&str, &std::path::Path)]| {
        Profile::file(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_os_str().to_owned())
        })
    };
    let xdg = folder.path().join("xdg");
    let both = [("XDG_CONFIG_HOME", &*xdg), ("HOME", &*home)];
    for file in [place("xdg"), place("home/.config")] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    assert_eq!(of(&both), Some(place("xdg")));
    assert_eq!(of(&both[1..]), Some(place("home/.config")));
    // The named file counts even if it does not exist.
    let named = std::path::Path::new("some profile");
    let set = [&both[..], &[(PROFILE_VARIABLE, named)]].concat();
    assert_eq!(of(&set), Some(named.to_owned()));
    let set = [&both[..], &[(PROFILE_VARIABLE, "".as_ref())]].concat();
    assert_eq!(of(&set), Some(place("xdg")));
    // A relative path is ignored.
    assert_eq!(of(&[("HOME", "home".as_ref())]), of(&[]));
}

#[test]
fn a_profile_limits_the_cores_that_work_at_once() {
    let device = npu_model::Model::new(npu_model::ModelOptions::default()).open_device();
    let mut own = profile();
    let files = |profile: &Profile| {
        let options = PlanOptions {
            profile: Arc::new(profile.clone()),
            ..PlanOptions::default()
        };
        options.files(&device.info())
    };
    assert_eq!(files(&own), 3);
    own.choices.cores.value = 1;
    assert_eq!(files(&own), 1);
}

#[test]
fn a_profile_is_of_one_board() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let info = rocket_uapi::DeviceInfo {
        is_model: true,
        ..npu_model::Model::new(npu_model::ModelOptions::default())
            .open_device()
            .info()
    };
    let here = Board::of(&info);
    let mut own = profile();
    let mut find = |board: Option<Board>| {
        own.board = board;
        std::fs::write(&file, own.to_json().unwrap()).unwrap();
        Profile::find_in(Some(file.clone()), &info)
    };
    assert_eq!(find(Some(here.clone())).unwrap().board, Some(here.clone()));
    let changes: [fn(&mut Board); 3] = [
        |board| board.board = "Another Board".to_owned(),
        |board| board.kernel = "0.0.1".to_owned(),
        |board| board.is_model = false,
    ];
    let others = changes.map(|change| {
        let mut other = here.clone();
        change(&mut other);
        Some(other)
    });
    for other in others.into_iter().chain([None]) {
        let refused = find(other.clone()).unwrap_err();
        let told = refused.to_string();
        let named = other.map_or_else(|| "no board".to_owned(), |board| board.to_string());
        assert!(told.contains(&named) && told.contains(&here.to_string()));
        assert!(
            told.contains("unmeasured") && !told.contains('\n'),
            "{told}"
        );
    }
    assert_eq!(Profile::find_in(None, &info).unwrap(), Profile::built_in());
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// No tile of an NPU plan is larger than a tile that has run.
    #[test]
    fn plans_keep_to_the_envelope(
        dtype in dtype(),
        m in 1..3000_usize,
        k in 1..12_000_usize,
        n in 1..9_000_usize,
        devices in 1..4_usize,
        rows in 1..1500_usize,
        int4_depth in prop::option::of(384..6000_usize),
        buffer_bytes in prop::sample::select(&[1_usize << 20, 64 << 20][..]),
    ) {
        let mut options = PlanOptions {
            unmeasured_tiles: Some(false),
            int4_depth,
            ..options(rows)
        };
        options.limits.buffer_bytes = buffer_bytes;
        let weights = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
        let plan = Plan::new(&weights, m, &options).unwrap();
        for step in plan.steps() {
            for task in step.jobs.iter().flat_map(|job| &job.tasks) {
                let sizes = [task.m_padded, task.k_padded, task.n_padded].map(|size| size as usize);
                let covers = |tile: &&MeasuredTile| {
                    tile.dtype == dtype
                        && [tile.rows, tile.k, tile.n].iter().zip(sizes).all(|(&most, size)| size <= most)
                };
                prop_assert!(
                    options.profile.envelope.iter().any(|tile| covers(&tile)),
                    "{dtype} {sizes:?}"
                );
            }
        }
    }

    /// Any valid tiles, clocks and costs give a plan or an error.
    #[test]
    fn any_profile_plans(
        tiles in prop::collection::vec((dtype(), prop::array::uniform3(number())), 0..4),
        [clock, rate, cost, host] in prop::array::uniform4(number()),
        [m, k, n] in prop::array::uniform3(1..5000_usize),
        dtype in dtype(),
    ) {
        let mut profile = profile();
        profile.envelope = tiles
            .into_iter()
            .map(|(dtype, [rows, k, n])| MeasuredTile {
                dtype,
                rows,
                k,
                n,
                evidence: "any".into(),
            })
            .collect();
        profile.machine.clock_hz = clock as u64;
        profile.machine.dram.core_bytes_per_second = rate as u64;
        profile.machine.driver.attach_ps = cost as u64;
        profile.host.clock_hz = host as u64;
        let read = Profile::from_json(profile.to_json().unwrap().as_bytes());
        let options = PlanOptions {
            unmeasured_tiles: Some(false),
            profile: Arc::new(read.unwrap_or(profile)),
            ..options(m)
        };
        if let Ok(weights) = WeightPlan::new(dtype, n, k, 3, &options) {
            let _ = Plan::new(&weights, m, &options);
        }
    }
}

#[test]
fn larger_tiles_are_asked_for() {
    let shape = |unmeasured| {
        let options = PlanOptions {
            unmeasured_tiles: unmeasured,
            row_tile: Some(548),
            ..options(548)
        };
        let weights = WeightPlan::new(Dtype::Int8, 64, 256, 3, &options).unwrap();
        Plan::new(&weights, 548, &options).map(|plan| plan.row_tile)
    };
    assert_eq!((shape(None), shape(Some(true))), (Ok(548), Ok(548)));
    assert!(matches!(
        shape(Some(false)),
        Err(crate::PlanError::Unmeasured { m: 548, .. })
    ));
}
