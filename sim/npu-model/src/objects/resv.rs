// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reservation of a buffer object: the fences on it, and who waits for
//! which (Linux, drivers/dma-buf/dma-resv.c).
//!
//! The driver attaches a job's fence to the objects that the job writes, as a
//! writer's, and to no others. Only IMPORT_SYNC_FILE attaches a reader's fence.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::base::lock::lock;
use crate::base::timeline::FenceName;
use crate::objects::fence::Fence;
use rocket_uapi::{Deadline, FenceStatus, Wake};

/// How an access uses an object. The order is the kernel's: a query for one
/// usage finds the fences of all usages up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Usage {
    /// An access that writes, and perhaps reads.
    Write,
    /// An access that only reads.
    Read,
}

impl Usage {
    /// The usage to query for the fences that an access has to wait for: a
    /// writer waits for all, a reader for writers (`dma_resv_usage_rw`).
    pub(crate) fn to_wait_for(writes: bool) -> Self {
        if writes { Self::Read } else { Self::Write }
    }
}

/// The fences on one object.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    fences: Mutex<Vec<(Usage, Arc<Fence>)>>,
    /// The names of these fences and of signalled ones. When a fence is
    /// signalled depends on the host; modelled time must not depend on it.
    named: Mutex<Vec<(Usage, FenceName)>>,
}

/// The fences of an object that a caller gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exported {
    /// The fences that have not ended.
    pub(crate) fences: Vec<Arc<Fence>>,
    /// Names of all of them, for modelled time.
    pub(crate) named: Vec<FenceName>,
}

impl Reservation {
    /// The names of the fences of all usages up to `usage`, signalled ones too.
    pub(crate) fn named(&self, usage: Usage) -> Vec<FenceName> {
        let named = lock(&self.named);
        let wanted = named.iter().filter(|(own, _)| *own <= usage);
        wanted.map(|&(_, name)| name).collect()
    }

    /// Records fences by name, which may be signalled already.
    pub(crate) fn name(&self, usage: Usage, names: &[FenceName]) {
        let mut named = lock(&self.named);
        for &(context, seqno) in names {
            named.retain(|&(own, (old, number))| old != context || number > seqno || own < usage);
            named.push((usage, (context, seqno)));
        }
    }

    /// The unsignalled fences of all usages up to `usage`.
    pub(crate) fn active(&self, usage: Usage) -> Vec<Arc<Fence>> {
        // Ended fences stay until a client could see them; see `export`.
        lock(&self.fences)
            .iter()
            .filter(|(own, fence)| *own <= usage && fence.is_active())
            .map(|(_, fence)| Arc::clone(fence))
            .collect()
    }

    /// Attaches a fence. It replaces earlier fences of its timeline that order
    /// no more than it does.
    pub(crate) fn add(&self, usage: Usage, fence: &Arc<Fence>) {
        self.name(usage, &[fence.name()]);
        let mut fences = lock(&self.fences);
        fences.retain(|(own, old)| {
            let outlived =
                old.context() == fence.context() && old.seqno() <= fence.seqno() && *own >= usage;
            old.is_active() && !outlived
        });
        if fence.is_active() {
            fences.push((usage, Arc::clone(fence)));
        }
    }

    /// The fences of a sync_file that is exported now.
    ///
    /// The kernel leaves out signalled fences, also those of killed jobs. A
    /// client that exports right after SUBMIT still gets them there, because a
    /// kill takes 500 ms. The model can kill at once. So a failed fence stays
    /// visible until a client has seen it.
    pub(crate) fn export(&self, usage: Usage) -> Exported {
        let mut fences = Vec::new();
        for (_, fence) in lock(&self.fences).iter().filter(|(own, _)| *own <= usage) {
            let status = fence.state();
            let unseen = fence.mark_seen();
            let wanted = match status {
                FenceStatus::Active => true,
                FenceStatus::Failed(_) => unseen,
                FenceStatus::Signaled => false,
            };
            if wanted {
                fences.push(Arc::clone(fence));
            }
        }
        Exported {
            fences,
            named: self.named(usage),
        }
    }

    /// Whether there is a writer that has not ended, or that no client has seen
    /// yet. This call, an export and the end of a wait count as seeing. The
    /// result does not depend on how fast the host runs the job.
    pub(crate) fn was_accepted(&self) -> bool {
        let mut accepted = false;
        // Mark all fences as seen, not only the first.
        for (usage, fence) in lock(&self.fences).iter() {
            let unseen = fence.mark_seen();
            accepted |= *usage == Usage::Write && (unseen || fence.is_active());
        }
        accepted
    }

    /// Whether the driver killed the job that wrote it last.
    pub(crate) fn was_killed(&self) -> bool {
        let killed = |(usage, fence): &(Usage, Arc<Fence>)| {
            *usage == Usage::Write && matches!(fence.state(), FenceStatus::Failed(_))
        };
        lock(&self.fences).iter().any(killed)
    }

    /// Sleeps until the fences of all usages up to `usage` are signalled.
    pub(crate) fn wait(&self, usage: Usage, until: Deadline, wake: Wake<'_>) -> Result<(), Errno> {
        self.active(usage)
            .iter()
            .try_for_each(|fence| fence.wait(until, wake))?;
        lock(&self.fences).retain(|(_, fence)| fence.state() != FenceStatus::Signaled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::fence::Maker;

    fn fence(context: u64, seqno: u64) -> Arc<Fence> {
        Arc::new(Fence::new(Maker::Core(0), context, seqno))
    }

    fn count(reservation: &Reservation) -> (usize, usize) {
        let of = |usage| reservation.active(usage).len();
        (of(Usage::Write), of(Usage::Read))
    }

    #[test]
    fn a_writer_that_ended_before_anybody_looked_was_accepted() {
        let reservation = Reservation::default();
        let quick = |number, result| {
            let fence = fence(1, number);
            reservation.add(Usage::Write, &fence);
            fence.signal(result);
        };
        assert!(!reservation.was_accepted());
        quick(1, Ok(()));
        // Neither submitting another job nor polling counts as seeing.
        assert_eq!(count(&reservation), (0, 0));
        assert!(reservation.was_accepted() && !reservation.was_accepted());
        quick(2, Ok(()));
        reservation
            .wait(Usage::Write, Deadline::FOREVER, Wake::Signal)
            .unwrap();
        assert!(!reservation.was_accepted(), "who waited has seen it");
        // A fence that was seen while active is not new at its end.
        let slow = fence(1, 3);
        reservation.add(Usage::Write, &slow);
        assert!(reservation.was_accepted() && reservation.was_accepted());
        slow.signal(Ok(()));
        assert!(!reservation.was_accepted() && !reservation.was_killed());
        // A kill stays known until the next job. A failed fence is exported
        // once.
        quick(4, Err(Errno::CANCELED));
        reservation
            .wait(Usage::Write, Deadline::FOREVER, Wake::Signal)
            .unwrap();
        let exported = || reservation.export(Usage::Write).fences.len();
        assert_eq!((exported(), exported()), (1, 0));
        assert!(reservation.was_killed());
        quick(5, Ok(()));
        assert!(!reservation.was_killed());
    }

    #[test]
    fn a_later_fence_takes_the_place_of_an_earlier_one_that_promises_no_more() {
        let reservation = Reservation::default();
        reservation.add(Usage::Write, &fence(1, 1));
        reservation.add(Usage::Write, &fence(1, 2));
        assert_eq!(count(&reservation), (1, 1));
        // A reader's fence does not replace a writer's.
        reservation.add(Usage::Read, &fence(1, 3));
        assert_eq!(count(&reservation), (1, 2));
        assert_eq!(reservation.named(Usage::Write), [(1, 2)]);
        assert_eq!(reservation.named(Usage::Read), [(1, 2), (1, 3)]);
        reservation.add(Usage::Write, &fence(1, 4));
        assert_eq!(count(&reservation), (1, 1));
        reservation.add(Usage::Write, &fence(1, 3));
        assert_eq!(count(&reservation), (2, 2), "an earlier one replaces none");
        reservation.add(Usage::Write, &fence(2, 5));
        assert_eq!(count(&reservation), (3, 3), "nor one of another timeline");
    }
}
