//! Names of quantizations, configurations, recipes, and whole files.

mod config;
mod file;
mod importance;
mod recipes;
mod spec;
