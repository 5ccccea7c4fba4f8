// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles that are whole are obeyed where they apply; others are refused.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::file::FILE_BYTES_MAX;
use super::*;
use crate::dtype::{Dtype, Results};
use crate::plan::{Plan, PlanOptions, PlanSizes, WeightPlan, alternatives};

fn options(m: usize) -> PlanOptions {
    let mut options = PlanOptions::default();
    options.conditions.rows = m;
    options
}

fn with(profile: &Profile, options: &PlanOptions) -> PlanOptions {
    PlanOptions {
        profile: Arc::new(profile.clone()),
        ..options.clone()
    }
}

/// Alternative `which` (counted round the end).
fn candidate(dtype: Dtype, [m, k, n]: [usize; 3], devices: usize, which: usize) -> FastestPlan {
    let all = alternatives(dtype, n, k, devices, &options(m), usize::MAX).unwrap();
    let one = &all[which % all.len()];
    FastestPlan::of(
        &one.candidate.weights,
        m,
        Results::Sums,
        one.choice,
        which as u64,
    )
}

fn profile(plans: impl IntoIterator<Item = FastestPlan>) -> Profile {
    let mut profile = Profile {
        board: Some(Board {
            board: "Some Board".to_owned(),
            kernel: "7.1.0".to_owned(),
            is_model: false,
        }),
        ..Profile::clone(&Profile::built_in())
    };
    for plan in plans {
        profile.insert(plan).unwrap();
    }
    profile
}

/// What an engine with this profile would do.
fn choice_with(
    profile: &Profile,
    dtype: Dtype,
    [m, k, n]: [usize; 3],
    devices: usize,
) -> PlanSizes {
    let options = with(profile, &options(m));
    let weights = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
    PlanSizes::of(&Plan::new(&weights, m, &options).unwrap())
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(&Dtype::ALL[..])
}

/// Small, large and absurd numbers.
fn number() -> impl Strategy<Value = usize> {
    (any::<usize>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

type Product = (Dtype, [usize; 3], usize, usize);

fn product() -> impl Strategy<Value = Product> {
    let sizes = (1..1500_usize, 1..9000_usize, 1..3000_usize).prop_map(|(m, k, n)| [m, k, n]);
    (dtype(), sizes, 1..5_usize, 0..20_usize)
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn a_profile_is_read_as_it_was_written(products in prop::collection::vec(product(), 0..6)) {
        let plans = products.iter().map(|&(p, sizes, devices, which)| {
            candidate(p, sizes, devices, which)
        });
        let profile = profile(plans);
        let json = profile.to_json().unwrap();
        prop_assert_eq!(Profile::from_json(json.as_bytes()).unwrap(), profile);
    }

    #[test]
    fn what_was_measured_is_chosen(product in product()) {
        let (dtype, sizes, devices, which) = product;
        let measured = candidate(dtype, sizes, devices, which);
        let chosen = choice_with(&profile([measured]), dtype, sizes, devices);
        prop_assert_eq!(chosen, measured.sizes);
    }

    /// Writing down what is predicted changes no size.
    #[test]
    fn the_predicted_choice_makes_the_predicted_plan(product in product()) {
        let (dtype, [m, k, n], devices, _) = product;
        let predicted = options(m);
        let tuned = with(&profile([candidate(dtype, [m, k, n], devices, 0)]), &predicted);
        let of = |options: &PlanOptions| WeightPlan::new(dtype, n, k, devices, options).unwrap();
        let weights = of(&predicted);
        prop_assert_eq!(&of(&tuned), &weights);
        let [tuned, predicted] =
            [tuned, predicted].map(|options| Plan::new(&weights, m, &options).unwrap());
        prop_assert_eq!(PlanSizes::of(&tuned), PlanSizes::of(&predicted));
    }

    #[test]
    fn any_numbers_are_a_plan_or_refused(
        dtype in dtype(),
        [m, k, n, devices, depth] in prop::array::uniform5(number()),
        [k_tile, row_tile, n_tile] in prop::array::uniform3(number()),
        replicate in any::<bool>(),
        multiples in any::<bool>(),
    ) {
        let round = |size: usize, unit: usize| if multiples { size / unit * unit } else { size };
        let mut profile = profile([]);
        let added = profile.insert(FastestPlan {
            dtype,
            results: Results::Sums,
            m,
            k,
            n,
            devices,
            int4_depth: (dtype == Dtype::Int4).then_some(depth),
            sizes: PlanSizes {
                k_tile: round(k_tile, 32),
                replicate,
                row_tile: round(row_tile, 4),
                n_tile: round(n_tile, dtype.kernel_group()),
            },
            measured_ns: 0,
        });
        prop_assert_eq!(profile.plans.len(), usize::from(added.is_ok()));
        let json = profile.to_json().unwrap();
        prop_assert_eq!(Profile::from_json(json.as_bytes()).unwrap(), profile);
    }

    #[test]
    fn damage_is_an_error_or_another_profile(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let plans = [candidate(Dtype::Int8, [64, 4096, 64], 2, 1)];
        let mut json = profile(plans).to_json().unwrap().into_bytes();
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

const SIZES: [usize; 3] = [512, 4096, 4096];

/// A choice that the timing model would not make.
fn other_choice() -> FastestPlan {
    candidate(Dtype::Int8, SIZES, 3, 2)
}

#[test]
fn elsewhere_the_prediction_holds() {
    let (of, none) = (profile([other_choice()]), profile([]));
    let both = |dtype, sizes, devices| {
        let choice = |profile| choice_with(profile, dtype, sizes, devices);
        (choice(&of), choice(&none))
    };
    let (measured, predicted) = both(Dtype::Int8, SIZES, 3);
    assert_ne!(measured, predicted);
    let [m, k, n] = SIZES;
    for (dtype, sizes, devices) in [
        (Dtype::Fp16, SIZES, 3),
        (Dtype::Int8, SIZES, 2),
        (Dtype::Int8, [m - 1, k, n], 3),
        (Dtype::Int8, [m, k - 32, n], 3),
        (Dtype::Int8, [m, k, n + 1], 3),
    ] {
        let (measured, predicted) = both(dtype, sizes, devices);
        assert_eq!(measured, predicted, "{dtype} {sizes:?} {devices}");
    }
}

#[test]
fn what_the_caller_fixes_comes_first() {
    let measured = other_choice();
    let options = with(&profile([measured]), &options(SIZES[0]));
    let forced = PlanOptions {
        k_tile: Some(measured.sizes.k_tile / 2 / 64 * 64),
        ..options.clone()
    };
    let [m, k, n] = SIZES;
    let weights = WeightPlan::new(Dtype::Int8, n, k, 3, &forced).unwrap();
    assert_eq!(Some(weights.k_tile), forced.k_tile);
    // Of weights that were cut otherwise nothing was measured.
    let plan = Plan::new(&weights, m, &options).unwrap();
    let none = with(&profile([]), &options);
    assert_eq!(plan, Plan::new(&weights, m, &none).unwrap());
    // A job's limits hold in any case.
    let mut small = options;
    small.limits.tasks = 1;
    small.limits.buffer_bytes = 64 << 10;
    let weights = WeightPlan::new(Dtype::Int8, n, k, 3, &small).unwrap();
    let plan = Plan::new(&weights, m, &small).unwrap();
    let mut steps = plan.steps();
    assert!(steps.all(|step| step.jobs.iter().all(|job| job.tasks.len() <= 1)));
}

/// INT4 choices are for weights that allow the same depth.
#[test]
fn int4_depths_are_told_apart() {
    let [m, k, n] = SIZES;
    let deep = PlanOptions {
        int4_depth: Some(2048),
        ..options(m)
    };
    let weights = WeightPlan::new(Dtype::Int4, n, k, 3, &deep).unwrap();
    let all = alternatives(Dtype::Int4, n, k, 3, &deep, usize::MAX).unwrap();
    let other = all
        .iter()
        .find(|one| one.choice.k_tile != weights.k_tile)
        .unwrap();
    let plan = FastestPlan::of(&other.candidate.weights, m, Results::Sums, other.choice, 1);
    let profile = profile([plan]);
    let cut = |depth| {
        let options = PlanOptions {
            int4_depth: depth,
            ..options(m)
        };
        let of = |options| {
            WeightPlan::new(Dtype::Int4, n, k, 3, options)
                .unwrap()
                .k_tile
        };
        (of(&with(&profile, &options)), of(&options))
    };
    assert_eq!(cut(Some(2048)), (other.choice.k_tile, weights.k_tile));
    for depth in [None, Some(1024), Some(4096)] {
        let (tuned, predicted) = cut(depth);
        assert_eq!(tuned, predicted, "{depth:?}");
    }
}

/// The JSON of a good profile, changed.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Profile, ProfileError> {
    let json = profile([other_choice()]).to_json().unwrap();
    let mut value: Value = serde_json::from_str(&json).unwrap();
    change(&mut value);
    Profile::from_json(value.to_string().as_bytes())
}

#[test]
fn what_makes_no_sense_is_refused_by_its_name() {
    assert!(changed(|_| ()).is_ok());
    let set = |path: &'static str, to: Value| {
        changed(move |value| *value.pointer_mut(path).unwrap() = to)
    };
    assert!(matches!(
        set("/format", json!("x")),
        Err(ProfileError::Format { .. })
    ));
    assert!(matches!(
        set("/version", json!(2)),
        Err(ProfileError::Format { version: 2, .. })
    ));
    assert!(matches!(
        set("/profile/plans/0/dtype", json!("int2")),
        Err(ProfileError::Json(_))
    ));
    assert!(matches!(
        set("/profile/plans/0/m", json!(-1)),
        Err(ProfileError::Json(_))
    ));
    assert!(matches!(
        set("/profile/plans/0/m", json!(1e99)),
        Err(ProfileError::Json(_))
    ));
    assert!(matches!(
        set("/profile/plans/0/sizes", json!({})),
        Err(ProfileError::Json(_))
    ));
    assert!(matches!(
        set("/profile/plans/0/dtype", json!("int4")),
        Err(ProfileError::PlanOf { index: 0 })
    ));
    let huge = || json!(u64::MAX);
    for (path, to) in [
        ("/profile/plans/0/m", json!(0)),
        ("/profile/plans/0/m", huge()),
        ("/profile/plans/0/k", huge()),
        ("/profile/plans/0/n", huge()),
        ("/profile/plans/0/devices", json!(0)),
        ("/profile/plans/0/devices", huge()),
        ("/profile/plans/0/sizes/k_tile", json!(0)),
        ("/profile/plans/0/sizes/k_tile", json!(33)),
        ("/profile/plans/0/sizes/k_tile", json!(8192)),
        ("/profile/plans/0/sizes/row_tile", json!(0)),
        ("/profile/plans/0/sizes/row_tile", json!(3)),
        ("/profile/plans/0/sizes/row_tile", json!(1020)),
        ("/profile/plans/0/sizes/row_tile", huge()),
        ("/profile/plans/0/sizes/n_tile", json!(31)),
        ("/profile/plans/0/sizes/n_tile", huge()),
    ] {
        let refused = set(path, to.clone());
        assert!(
            matches!(refused, Err(ProfileError::Plan { index: 0, .. })),
            "{path} {to}: {refused:?}"
        );
    }
    let twice = changed(|value| {
        let plans = value["profile"]["plans"].as_array_mut().unwrap();
        plans.push(plans[0].clone());
    });
    assert!(matches!(twice, Err(ProfileError::PlanOf { index: 1 })));
    for (path, to) in [
        ("/profile/machine/clock_hz", json!(0)),
        ("/profile/machine/driver/kick_ps", huge()),
        ("/profile/machine/dram/core_bytes_per_second", huge()),
        ("/profile/host/cores", json!(0)),
        ("/profile/host/sync_bytes_per_second", json!(1)),
    ] {
        let refused = set(path, to);
        assert!(
            matches!(refused, Err(ProfileError::Number { .. })),
            "{path}: {refused:?}"
        );
    }
    for text in ["two\nlines".to_owned(), "x".repeat(257)] {
        for path in [
            "/profile/name",
            "/profile/board/kernel",
            "/profile/envelope/0/evidence",
        ] {
            let refused = set(path, json!(text));
            assert!(matches!(refused, Err(ProfileError::Text)), "{path}");
        }
    }
    assert!(matches!(
        set("/profile/machine/chip", json!("rk3576")),
        Err(ProfileError::Json(_))
    ));
    let unknown = changed(|value| value["profile"]["plans"][0]["colour"] = json!("red"));
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
fn files_are_regular_and_short() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let procfs = std::path::Path::new("/proc/self/status");
    for unread in [folder.path(), "/dev/zero".as_ref(), procfs, &file] {
        let refused = Profile::read(unread);
        assert!(matches!(refused, Err(ProfileError::Read { .. })));
    }
    let written = profile([other_choice()]);
    std::fs::write(&file, written.to_json().unwrap()).unwrap();
    assert_eq!(Profile::read(&file).unwrap(), written);
    std::fs::write(&file, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
    let long = Profile::read(&file).unwrap_err();
    assert!(long.to_string().contains("longer than"), "{long}");
}

/// The file's form is an interface: a change needs another version.
#[test]
fn version_1_reads_on() {
    let json = include_str!("version1.json");
    let read = Profile::from_json(json.as_bytes()).unwrap();
    assert_eq!((read.plans.len(), read.facts.len()), (2, 1));
    assert_eq!(read.choices, Profile::built_in().choices);
    assert_eq!(
        Profile::from_json(read.to_json().unwrap().as_bytes()).unwrap(),
        read
    );
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
    // Named, whether it is there or not.
    let named = std::path::Path::new("some profile");
    let set = [&both[..], &[(PROFILE_VARIABLE, named)]].concat();
    assert_eq!(of(&set), Some(named.to_owned()));
    let set = [&both[..], &[(PROFILE_VARIABLE, "".as_ref())]].concat();
    assert_eq!(of(&set), Some(place("xdg")));
    // What is no absolute path is no folder.
    assert_eq!(of(&[("HOME", "home".as_ref())]), of(&[]));
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
    let mut own = profile([]);
    let mut find = |board: Option<Board>| {
        own.board = board;
        std::fs::write(&file, own.to_json().unwrap()).unwrap();
        Profile::find_in(Some(file.clone()), &info)
    };
    assert_eq!(find(Some(here.clone())).unwrap().board, Some(here.clone()));
    let others = [
        None,
        Some(Board {
            board: "Another Board".to_owned(),
            ..here.clone()
        }),
        Some(Board {
            kernel: "0.0.1".to_owned(),
            ..here.clone()
        }),
        Some(Board {
            is_model: false,
            ..here.clone()
        }),
    ];
    for other in others {
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

#[test]
fn another_clock_has_no_measured_plans() {
    let profile = profile([other_choice()]);
    let same = profile.machine.clock_hz;
    assert_eq!(profile.at_clock(same), profile);
    let other = profile.at_clock(600_000_000);
    assert_eq!(
        (other.machine.clock_hz, other.plans.len()),
        (600_000_000, 0)
    );
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// No tile of an NPU's plan is larger than one that has run.
    #[test]
    fn plans_keep_to_the_envelope(
        dtype in dtype(),
        m in 1..3000_usize,
        k in 1..12_000_usize,
        n in 1..9_000_usize,
        devices in 1..4_usize,
        rows in 1..1500_usize,
        depth in 384..6000_usize,
    ) {
        let mut options = PlanOptions {
            unmeasured_tiles: Some(false),
            int4_depth: Some(depth),
            ..options(rows)
        };
        options.limits.buffer_bytes = 1 << 20;
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
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// Whatever a file says of tiles, clocks and costs: plans or errors.
    #[test]
    fn any_profile_plans(
        tiles in prop::collection::vec((dtype(), prop::array::uniform3(number())), 0..4),
        [clock, rate, cost, host] in prop::array::uniform4(number()),
        [m, k, n] in prop::array::uniform3(1..5000_usize),
        dtype in dtype(),
    ) {
        let mut profile = profile([]);
        profile.envelope = tiles
            .into_iter()
            .map(|(dtype, [rows, k, n])| MeasuredTile {
                dtype,
                row_major: false,
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
            ..with(&read.unwrap_or(profile), &options(m))
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
