"""From a tape to compiled programs: what is run, how it is compiled and cached, and analyses."""
