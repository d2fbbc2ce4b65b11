//! Tests of the plan: films (`film`) of a pool through several steps, named after the cases and matrix rows
//! that they play, single plans where one is enough, and properties over random pools.

mod builders;
mod choice;
mod conditions;
mod film;
mod intents;
mod membership;
mod numbers;
mod properties;
mod rollout;
mod rollout_properties;
mod status;
mod update_states;
