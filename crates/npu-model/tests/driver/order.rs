// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which job runs where and before which: seen by gates and logs, never by
//! the clock.

use crate::client::*;
use crate::script::Step;

/// A job that logs its number, optionally behind a gate of that number.
fn job(client: &Client, number: u32, gated: bool, reads: &[Bo], writes: &[Bo]) -> JobSpec {
    let mut script = vec![];
    if gated {
        script.push(Step::Wait { gate: number });
    }
    script.push(Step::Log { number });
    JobSpec::new(&client.program(&script), reads, writes)
}

#[test]
fn a_file_stays_on_one_core_while_it_is_busy() {
    let bench = Bench::new(3);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let jobs = [
        job(&client, 1, true, &[], &[]),
        job(&client, 2, false, &[], &[]),
        job(&client, 3, false, &[], &[out]),
    ];
    client.submit(&jobs).unwrap();
    bench.stage.await_arrival(1);
    bench.stage.open_gate(1);
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(bench.stage.log(), [(1, 0), (2, 0), (3, 0)]);
}

#[test]
fn a_lone_file_alternates_between_two_cores() {
    let bench = Bench::new(3);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    for number in 0..5 {
        client
            .submit(&[job(&client, number, false, &[], &[out])])
            .unwrap();
        client.prep(out.handle, FOREVER).unwrap();
    }
    let cores: Vec<_> = bench.stage.log().iter().map(|&(_, core)| core).collect();
    assert_eq!(cores, [0, 1, 0, 1, 0]);
}

#[test]
fn three_files_use_three_cores_and_a_fourth_waits() {
    let bench = Bench::new(3);
    let clients: Vec<_> = (0..4).map(|_| bench.client()).collect();
    let outs: Vec<_> = clients.iter().map(|c| c.create(4096).unwrap()).collect();
    for (index, client) in clients.iter().enumerate() {
        let job = job(client, index as u32, true, &[], &[outs[index]]);
        client.submit(&[job]).unwrap();
    }
    for gate in 0..3 {
        bench.stage.await_arrival(gate);
    }
    assert!(!bench.stage.is_waiting_at(3), "all cores are taken");
    bench.stage.open_gate(3);
    for gate in [2, 1, 0] {
        bench.stage.open_gate(gate);
        clients[gate as usize]
            .prep(outs[gate as usize].handle, FOREVER)
            .unwrap();
    }
    clients[3].prep(outs[3].handle, FOREVER).unwrap();
    let log = bench.stage.log();
    assert_eq!(log[..3], [(2, 2), (1, 1), (0, 0)]);
    assert_eq!(log[3], (3, 0), "the first of three equal cores");
}

/// Two files that share two buffer objects by PRIME.
#[cfg(not(miri))]
mod across_files {
    use std::os::fd::AsRawFd;

    use super::*;

    struct Pair {
        bench: Bench,
        first: Client,
        second: Client,
        /// As the first file sees the shared object.
        shared: Bo,
        /// As the second file sees it: no address.
        imported: Bo,
    }

    fn pair() -> Pair {
        let bench = Bench::new(3);
        let (first, second) = (bench.client(), bench.client());
        let shared = first.create(4096).unwrap();
        let dma_buf = first.0.prime_export(shared.handle).unwrap();
        let handle = second.0.prime_import(dma_buf.as_raw_fd()).unwrap();
        Pair {
            bench,
            first,
            second,
            shared,
            imported: Bo { handle, ..shared },
        }
    }

    /// A queue whose head waits for another file holds back the file's other
    /// jobs, but not the core.
    #[test]
    fn a_blocked_queue_does_not_block_its_core() {
        let pair = pair();
        let out = pair.second.create(4096).unwrap();
        let write = job(&pair.first, 1, true, &[], &[pair.shared]);
        let read = job(&pair.second, 2, false, &[pair.imported], &[]);
        let free = job(&pair.second, 3, false, &[], &[out]);
        pair.first.submit(&[write]).unwrap();
        pair.bench.stage.await_arrival(1);
        pair.second.submit(&[read, free]).unwrap();
        let (third, fourth) = (pair.bench.client(), pair.bench.client());
        let (out3, out4) = (third.create(1).unwrap(), fourth.create(1).unwrap());
        third.submit(&[job(&third, 4, true, &[], &[out3])]).unwrap();
        pair.bench.stage.await_arrival(4);
        // Cores: 0 runs job 1, 1 has the blocked queue, 2 runs job 4. The
        // least loaded is that of job 1 or 4; give those two more.
        fourth.submit(&[job(&fourth, 5, false, &[], &[])]).unwrap();
        pair.bench.stage.open_gate(4);
        third.prep(out3.handle, FOREVER).unwrap();
        let fifth = pair.bench.client();
        let out5 = fifth.create(1).unwrap();
        fifth
            .submit(&[job(&fifth, 6, false, &[], &[out5])])
            .unwrap();
        fifth.prep(out5.handle, FOREVER).unwrap();
        pair.bench.stage.open_gate(1);
        pair.second.prep(out.handle, FOREVER).unwrap();
        fourth
            .submit(&[job(&fourth, 7, false, &[], &[out4])])
            .unwrap();
        fourth.prep(out4.handle, FOREVER).unwrap();
        let order: Vec<_> = pair.bench.stage.log().iter().map(|&(n, _)| n).collect();
        let place = |n: u32| order.iter().position(|&m| m == n).unwrap();
        assert!(place(6) < place(1), "{order:?}");
        assert!(place(1) < place(2) && place(2) < place(3), "{order:?}");
    }
}

#[test]
fn closing_a_file_runs_its_queue() {
    let bench = Bench::new(1);
    let client = bench.client();
    let watcher = bench.client();
    let out = watcher.create(4096).unwrap();
    // The programs are listed: an object that no job holds goes with its file,
    // also from under the job in flight.
    let listed = |number| {
        let program = client.program(&[Step::Log { number }]);
        JobSpec::new(&program, &[program.bo], &[])
    };
    let jobs: Vec<_> = (1..=3).map(listed).collect();
    client.submit(&jobs).unwrap();
    drop(client);
    watcher
        .submit(&[job(&watcher, 4, false, &[], &[out])])
        .unwrap();
    watcher.prep(out.handle, FOREVER).unwrap();
    let order: Vec<_> = bench.stage.log().iter().map(|&(n, _)| n).collect();
    assert_eq!(order, [1, 2, 3, 4]);
}
