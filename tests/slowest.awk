# Passes the output of `cargo test` on, and prints its ten slowest test programs at the end.
{ print; fflush() }
/^ +Running / { program = $2 " " $3 }
/^ +Doc-tests / { program = "doc-tests " $2 }
/^test result:.*finished in / {
    seconds = $NF
    sub(/s$/, "", seconds)
    took[program] += seconds
}
END {
    print "\nThe ten slowest test programs, in seconds:"
    fflush()
    for (program in took) printf "%8.1f  %s\n", took[program], program | "sort -rn | head -10"
}
