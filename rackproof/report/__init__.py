"""The faces of a run: certificate, page, JUnit, Prometheus, terminal.

Everything here renders data that was judged already. Nothing measures, nothing judges, nothing reads a clock; the
same certificate gives the same bytes.
"""
