//! What the controller makes of its caches, and the order of its calls against a played API server.

mod answers;
mod calls;
mod census;
mod declined;
mod detach;
mod failures;
mod follow;
mod leadership;
mod member_disks;
mod occupied;
mod played;
mod premises;
mod revisions;
mod snapshot;
mod trial;
