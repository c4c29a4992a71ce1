"""From a teacher to a student: sequence-level distillation (Kim and Rush 2016), stage by stage."""
