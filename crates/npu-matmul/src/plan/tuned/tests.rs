// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that are whole are obeyed where they apply; others are refused.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::alternatives;
use super::*;

fn conditions() -> TunedFor {
    TunedFor {
        chip: "rk3588".to_owned(),
        device: DeviceKind::Silicon,
        driver: "rocket".to_owned(),
        driver_version: [1, 2, 3],
        clock_hz: 600_000_000,
    }
}

fn options(m: usize) -> PlanOptions {
    let mut options = PlanOptions::default();
    options.conditions.rows = m;
    options
}

fn with(table: &TunedPlans, options: &PlanOptions) -> PlanOptions {
    PlanOptions {
        tuned: Some(Arc::new(table.clone())),
        ..options.clone()
    }
}

/// Alternative `which` (counted round the end).
fn candidate(dtype: Dtype, [m, k, n]: [usize; 3], devices: usize, which: usize) -> TunedPlan {
    let all = alternatives(dtype, n, k, devices, &options(m), usize::MAX).unwrap();
    let one = &all[which % all.len()];
    TunedPlan {
        key: TunedKey::of(&one.candidate.weights, m, Results::Sums),
        choice: one.choice,
        predicted_ns: one.candidate.cost_ps() / 1000,
        measured_ns: which as u64,
    }
}

fn table(plans: impl IntoIterator<Item = TunedPlan>) -> TunedPlans {
    let mut table = TunedPlans::new(conditions());
    for plan in plans {
        table.insert(plan).unwrap();
    }
    table
}

/// What an engine with this table would do.
fn choice_with(
    table: &TunedPlans,
    dtype: Dtype,
    [m, k, n]: [usize; 3],
    devices: usize,
) -> PlanSizes {
    let options = with(table, &options(m));
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
    fn a_table_is_read_as_it_was_written(products in prop::collection::vec(product(), 0..6)) {
        let plans = products.iter().map(|&(p, sizes, devices, which)| {
            candidate(p, sizes, devices, which)
        });
        let table = table(plans);
        let json = table.to_json().unwrap();
        prop_assert_eq!(TunedPlans::from_json(json.as_bytes()).unwrap(), table);
    }

    #[test]
    fn what_was_measured_is_chosen(product in product()) {
        let (dtype, sizes, devices, which) = product;
        let measured = candidate(dtype, sizes, devices, which);
        let chosen = choice_with(&table([measured]), dtype, sizes, devices);
        prop_assert_eq!(chosen, measured.choice);
    }

    /// Writing down what is predicted changes no size.
    #[test]
    fn the_predicted_choice_makes_the_predicted_plan(product in product()) {
        let (dtype, [m, k, n], devices, _) = product;
        let predicted = options(m);
        let tuned = with(&table([candidate(dtype, [m, k, n], devices, 0)]), &predicted);
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
        let mut table = table([]);
        let added = table.insert(TunedPlan {
            key: TunedKey {
                dtype,
                results: Results::Sums,
                m,
                k,
                n,
                devices,
                int4_depth: (dtype == Dtype::Int4).then_some(depth),
            },
            choice: PlanSizes {
                k_tile: round(k_tile, 32),
                replicate,
                row_tile: round(row_tile, 4),
                n_tile: round(n_tile, dtype.kernel_group()),
            },
            predicted_ns: u64::MAX,
            measured_ns: 0,
        });
        prop_assert_eq!(table.iter().len(), usize::from(added.is_ok()));
        let json = table.to_json().unwrap();
        prop_assert_eq!(TunedPlans::from_json(json.as_bytes()).unwrap(), table);
    }

    #[test]
    fn damage_is_an_error_or_another_table(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let plans = [candidate(Dtype::Int8, [64, 4096, 64], 2, 1)];
        let mut json = table(plans).to_json().unwrap().into_bytes();
        let cut = cut.index(json.len() - 1);
        prop_assert!(TunedPlans::from_json(&json[..cut]).is_err());
        let at = at.index(json.len());
        json[at] = byte;
        if let Ok(read) = TunedPlans::from_json(&json) {
            let again = read.to_json().unwrap();
            prop_assert_eq!(TunedPlans::from_json(again.as_bytes()).unwrap(), read);
        }
    }
}

const SIZES: [usize; 3] = [512, 4096, 4096];

/// A choice that the timing model would not make.
fn other_choice() -> TunedPlan {
    candidate(Dtype::Int8, SIZES, 3, 2)
}

#[test]
fn elsewhere_the_prediction_holds() {
    let (of, none) = (table([other_choice()]), table([]));
    let both = |dtype, sizes, devices| {
        let choice = |table| choice_with(table, dtype, sizes, devices);
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
    let options = with(&table([measured]), &options(SIZES[0]));
    let forced = PlanOptions {
        k_tile: Some(measured.choice.k_tile / 2 / 32 * 32),
        ..options.clone()
    };
    let [m, k, n] = SIZES;
    let weights = WeightPlan::new(Dtype::Int8, n, k, 3, &forced).unwrap();
    assert_eq!(Some(weights.k_tile), forced.k_tile);
    // Of weights that were cut otherwise nothing was measured.
    let plan = Plan::new(&weights, m, &options).unwrap();
    let none = PlanOptions {
        tuned: None,
        ..options.clone()
    };
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
    let table = table([TunedPlan {
        key: TunedKey::of(&other.candidate.weights, m, Results::Sums),
        choice: other.choice,
        predicted_ns: 1,
        measured_ns: 1,
    }]);
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
        (of(&with(&table, &options)), of(&options))
    };
    assert_eq!(cut(Some(2048)), (other.choice.k_tile, weights.k_tile));
    for depth in [None, Some(1024), Some(4096)] {
        let (tuned, predicted) = cut(depth);
        assert_eq!(tuned, predicted, "{depth:?}");
    }
}

#[test]
fn all_conditions_count() {
    let ours = conditions();
    assert_eq!(ours.check(&ours.clone()), Ok(()));
    let others = [
        TunedFor {
            chip: "rk3576".to_owned(),
            ..conditions()
        },
        TunedFor {
            device: DeviceKind::Model,
            ..conditions()
        },
        TunedFor {
            driver: "rknpu".to_owned(),
            ..conditions()
        },
        TunedFor {
            driver_version: [1, 2, 4],
            ..conditions()
        },
        TunedFor {
            clock_hz: 600_000_001,
            ..conditions()
        },
    ];
    for other in others {
        let differs = other.check(&ours).unwrap_err();
        assert_ne!(differs.theirs, differs.ours, "{differs}");
        assert!(differs.to_string().contains(&differs.theirs));
    }
}

/// The JSON of a good table, changed.
fn changed(change: impl FnOnce(&mut Value)) -> Result<TunedPlans, TunedError> {
    let json = table([other_choice()]).to_json().unwrap();
    let mut value: Value = serde_json::from_str(&json).unwrap();
    change(&mut value);
    TunedPlans::from_json(value.to_string().as_bytes())
}

#[test]
fn what_makes_no_sense_is_refused_by_its_name() {
    assert!(changed(|_| ()).is_ok());
    let set = |path: &'static str, to: Value| {
        changed(move |value| *value.pointer_mut(path).unwrap() = to)
    };
    assert!(matches!(
        set("/format", json!("x")),
        Err(TunedError::Format { .. })
    ));
    assert!(matches!(
        set("/version", json!(2)),
        Err(TunedError::Version { found: 2 })
    ));
    assert!(matches!(
        set("/plans/0/dtype", json!("int2")),
        Err(TunedError::Json(_))
    ));
    assert!(matches!(
        set("/plans/0/m", json!(-1)),
        Err(TunedError::Json(_))
    ));
    assert!(matches!(
        set("/plans/0/m", json!(1e99)),
        Err(TunedError::Json(_))
    ));
    assert!(matches!(
        set("/plans/0/choice", json!({})),
        Err(TunedError::Json(_))
    ));
    assert!(matches!(
        set("/plans/0/dtype", json!("int4")),
        Err(TunedError::Int4Depth { index: 0 })
    ));
    let huge = json!(u64::MAX);
    for (path, to) in [
        ("/plans/0/m", json!(0)),
        ("/plans/0/m", huge.clone()),
        ("/plans/0/k", huge.clone()),
        ("/plans/0/n", huge.clone()),
        ("/plans/0/devices", json!(0)),
        ("/plans/0/devices", huge.clone()),
        ("/plans/0/choice/k_tile", json!(0)),
        ("/plans/0/choice/k_tile", json!(33)),
        ("/plans/0/choice/k_tile", json!(8192)),
        ("/plans/0/choice/row_tile", json!(0)),
        ("/plans/0/choice/row_tile", json!(3)),
        ("/plans/0/choice/row_tile", json!(1020)),
        ("/plans/0/choice/row_tile", huge.clone()),
        ("/plans/0/choice/n_tile", json!(31)),
        ("/plans/0/choice/n_tile", huge),
    ] {
        let refused = set(path, to.clone());
        assert!(
            matches!(refused, Err(TunedError::Illegal { index: 0, .. })),
            "{path} {to}: {refused:?}"
        );
    }
    let twice = changed(|value| {
        let plans = value["plans"].as_array_mut().unwrap();
        plans.push(plans[0].clone());
    });
    assert!(matches!(twice, Err(TunedError::Twice { index: 1 })));
    let unknown = changed(|value| value["plans"][0]["colour"] = json!("red"));
    assert!(matches!(unknown, Err(TunedError::Json(_))));
    let nested = "[".repeat(100_000);
    assert!(matches!(
        TunedPlans::from_json(nested.as_bytes()),
        Err(TunedError::Json(_))
    ));
    let long = vec![b' '; FILE_BYTES_MAX as usize + 1];
    assert!(matches!(
        TunedPlans::from_json(&long),
        Err(TunedError::TooLong)
    ));
}

#[test]
fn files_are_regular_and_short() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        TunedPlans::read(folder.path()),
        Err(TunedError::NotAFile)
    ));
    assert!(matches!(
        TunedPlans::read("/dev/zero".as_ref()),
        Err(TunedError::NotAFile)
    ));
    let file = folder.path().join("plans.json");
    assert!(matches!(TunedPlans::read(&file), Err(TunedError::Read(_))));
    let written = table([other_choice()]);
    std::fs::write(&file, written.to_json().unwrap()).unwrap();
    assert_eq!(TunedPlans::read(&file).unwrap(), written);
    std::fs::write(&file, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(matches!(TunedPlans::read(&file), Err(TunedError::TooLong)));
}

/// The file's form is an interface: a change needs another version.
#[test]
fn version_1_reads_on() {
    let json = include_str!("version1.json");
    let read = TunedPlans::from_json(json.as_bytes()).unwrap();
    assert_eq!(read.conditions(), &conditions());
    assert_eq!(read.iter().len(), 2);
    assert_eq!(read.to_json().unwrap(), json);
}
