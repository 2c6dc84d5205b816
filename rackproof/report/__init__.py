"""Output formats of a run: certificate, page, JUnit, Prometheus, terminal.

Everything here renders judged data. Nothing measures, judges or reads a clock: the same certificate always
gives the same bytes.
"""
